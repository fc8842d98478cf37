/** Types of the HTTP API, made from its description: `WIGWAG_BLESS=1 cargo test -p wigwag-server` writes them. */
/* eslint-disable */

export type Acknowledged = { "asked": string; "compensating"?: boolean; "id": string; "new": boolean };
export type Cancel = { "reason"?: (string | null) };
export type Code = ("not_found" | "gone" | "conflict" | "not_running" | "invalid" | "invalid_name" | "invalid_payload" | "rejected_sender" | "not_waiting" | "unknown_point" | "run_failed" | "run_cancelled" | "timed_out" | "stopped" | "unavailable" | "damaged" | "no_route" | "method_not_allowed" | "malformed_json" | "invalid_body" | "unsupported_media_type" | "body_too_large" | "invalid_query" | "invalid_path" | "invalid_header" | "body_timeout" | "request_timeout" | "not_authenticated" | "not_allowed" | "foreign_origin" | "foreign_host" | "proxy_not_allowed" | "rate_limited" | "too_many_attempts" | "overloaded" | "internal");
export type Consumed = { "at": string; "next": OpenWait[]; "point": string; "status": Status };
export type Counts = { "types": { [key: string]: unknown }; "waiting": { [key: string]: unknown } };
export type Counts2 = { "cancelled": number; "completed": number; "failed": number };
export type Definition = { "hash": string; "type": string; [key: string]: unknown };
export type EndStep = { "at": string; "cancelled": number; "completed": number; "failed": number };
export type Entry = { "at": string; "by": string; "events": Event[]; "requests"?: (Requests | null); "seq": number };
export type Event = { "type": string; [key: string]: unknown };
export type Explanation = { "compensated": Undo[]; "id": string; "points": OpenPoint[]; "status": Status; "why": string; "would_compensate": string[] };
export type Fate = ("unconsumed" | "consumed" | "superseded" | "void" | "never_consumed" | "unacknowledged");
export type Fault = { "detail"?: (string | null); "message": string; "point"?: (string | null); "type": string };
export type FieldProblem = { "message": string; "path": string };
export type FieldProblems = FieldProblem[];
export type Figures = { "dollars_a_day"?: (number | null); "hub": unknown; "step": number; "steps": Step2[]; "sweeper_repairs": number; "up": number };
export type Found = { "id": string; "task": boolean };
export type Group = { "ages": number[]; "count": number; "due_within_1h"?: (number | null); "name": string; "oldest"?: (string | null); "types"?: (string[] | null) };
export type Health = { "status": string };
export type Listed = { "key": string; "modified": string };
export type Listing = { "examined": number; "items": Summary[]; "next"?: (string | null); "unreadable"?: string[] };
export type Made = { "expires": string; "id": string; "name": string; "once": boolean; "path": string; "run": string; "sender"?: (string | null); "token": string; "url"?: (string | null) };
export type Make = { "expires_in"?: (string | number | null); "name": string; "once"?: boolean; "run": string; "sender"?: (string | null) };
export type Me = { "by_free": boolean; "dashboard"?: (string | null); "name"?: (string | null); "scopes"?: (string[] | null); "store": StoreFacts; "until"?: (number | null); "version": string };
export type Migrate = { "rename"?: { [key: string]: unknown }; "skip"?: string[]; "to"?: (string | null) };
export type Misfit = { "at": string; "by"?: (string | null); "name": string; "reason": string };
export type Moment = string;
export type Nothing = { [key: string]: unknown };
export type Notify = { "gap"?: boolean; "keys": string[] };
export type Object = { "base64"?: (string | null); "bytes": number; "json"?: unknown; "key": string; "modified": string; "text"?: (string | null) };
export type One = { "by"?: (string | null); "key"?: (string | null); "name": string; "only_if_waiting"?: boolean; "payload"?: unknown; "point"?: (string | null); "run": string; "start_if_absent"?: (StartOne | null); "task"?: boolean };
export type OpenPoint = { "about"?: (string | null); "child"?: (string | null); "have": string; "kind": PointKind; "misfits"?: (Misfit[] | null); "needs": string; "point": string; "since"?: (string | null); "then": string; "until"?: (string | null) };
export type OpenWait = { "about"?: (string | null); "authenticated"?: (boolean | null); "deadline"?: (string | null); "mode": string; "name": string; "point": string; "quorum": number; "schema"?: unknown; "since"?: (string | null) };
export type Outcome = (Sent | Problem);
export type Outcomes = { "results": Outcome[] };
export type Page = { "items": Step[]; "next"?: (string | null) };
export type Page2 = { "items": Entry[]; "next"?: (string | null) };
export type Page3 = { "items": Signal[]; "next"?: (string | null) };
export type Page4 = { "items": OpenWait[]; "next"?: (string | null) };
export type Page5 = { "items": WaitingRun[]; "next"?: (string | null) };
export type Page6 = { "items": Definition[]; "next"?: (string | null) };
export type Page7 = { "items": Found[]; "next"?: (string | null) };
export type Page8 = { "items": Workflow[]; "next"?: (string | null) };
export type Page9 = { "items": Listed[]; "next"?: (string | null) };
export type Point = { "attempt"?: (number | null); "ended_at"?: (string | null); "error"?: (Fault | null); "kind"?: (PointKind | null); "result"?: unknown; "seq": number; "started_at"?: (string | null); "status": PointStatus; "until"?: (string | null) };
export type PointKind = ("step" | "sleep" | "wait" | "child" | "mark");
export type PointStatus = ("running" | "retrying" | "completed" | "failed" | "skipped");
export type Problem = { "code": Code; "detail": string; "errors"?: (FieldProblems | null); "fault"?: unknown; "hint"?: (string | null); "status": number; "title": string; "type": string };
export type Prune = { "dry_run"?: boolean; "older_than": Span; "status"?: (Status | null) };
export type Pruned = { "freed": number; "more": boolean; "objects": number; "runs": number };
export type Requests = { "deletes"?: (number | null); "gets"?: (number | null); "lists"?: (number | null); "puts"?: (number | null) };
export type Restart = { "from"?: (string | null) };
export type Resume = { "anyway"?: boolean };
export type Revoke = { "id"?: string; "run"?: string; "token"?: string } & (unknown);
export type Revoked = { "id": string; "new": boolean; "run": string };
export type Run = { "created_at": string; "current_steps": string[]; "data": { [key: string]: unknown }; "dollars"?: (number | null); "error"?: (Fault | null); "id": string; "input": unknown; "next_at"?: (string | null); "requests"?: (Requests | null); "restarts": number; "result"?: unknown; "seq": number; "status": Status; "steps": { [key: string]: unknown }; "type": string; "undo"?: ({ [key: string]: unknown } | null); "updated_at": string; "waits": string[]; "warnings"?: (string[] | null) };
export type RunsSummary = { "at": string; "ended": Counts2; "exact": boolean; "steps": EndStep[]; "types": TypeCounts2[]; "unfinished": number };
export type Send = { "by"?: (string | null); "key"?: (string | null); "only_if_waiting"?: boolean; "payload"?: unknown; "point"?: (string | null); "start_if_absent"?: (StartIfAbsent | null); "wait"?: (Span | null) };
export type SendMany = { "signals": One[] };
export type Sent = { "consumed"?: (Consumed | null); "id": string; "repeated": boolean; "state": string; "suffix": string; "warning"?: (string | null) };
export type ServerSentEvent = { "data": string; "event": string; "id"?: (string | null) };
export type Shown = { "expires": string; "id": string; "name": string; "once": boolean; "run": string; "sender"?: (string | null) };
export type Signal = { "at"?: (string | null); "created_at": string; "fate": Fate; "id": string; "meant_for"?: (string | null); "misfit"?: (string | null); "name": string; "payload": unknown; "point"?: (string | null); "source": Source; "suffix": string };
export type Source = { "authenticated"?: (boolean | null); "by"?: (string | null); "via"?: (string | null) };
export type Span = (string | number);
export type Start = { "at"?: (Moment | null); "delay"?: (Span | null); "id"?: (string | null); "input"?: unknown; "registered_only"?: boolean; "type": string; "wait"?: (Span | null) };
export type StartIfAbsent = { "input"?: unknown; "type": string };
export type StartOne = { "input"?: unknown; "type": string };
export type Started = { "id": string; "warnings"?: string[] };
export type Status = ("pending" | "running" | "paused" | "waiting_signal" | "compensating" | "completed" | "failed" | "cancelled");
export type Step = { "attempt"?: (number | null); "ended_at"?: (string | null); "error"?: (Fault | null); "kind"?: (PointKind | null); "path": string; "result"?: unknown; "seq": number; "started_at"?: (string | null); "status": PointStatus; "until"?: (string | null) };
export type Step2 = { "at": string; "http": number; "http_p50_ms"?: (number | null); "http_p99_ms"?: (number | null); "runs_completed": number; "runs_failed": number; "runs_started": number; "signals": number; "steps": number; "store_gets"?: (number | null); "store_lists"?: (number | null); "store_puts"?: (number | null) };
export type StoreFacts = { "notifies": boolean; "url"?: (string | null) };
export type Submit = { "at"?: (Moment | null); "delay"?: (Span | null); "expires_at"?: (Moment | null); "expires_in"?: (Span | null); "input"?: unknown; "key"?: (string | null); "queue"?: (string | null); "retries"?: (number | null); "timeout"?: (Span | null); "type": string; "wait"?: (Span | null) };
export type Summary = { "created_at": string; "current_steps": string[]; "error"?: (string | null); "id": string; "next_at"?: (string | null); "status": Status; "type": string; "updated_at": string };
export type Sweep = { "dry_run"?: boolean };
export type Swept = { "hints": number; "lost_live": number; "lost_runs": number; "lost_waits": number; "orphan_hints": number; "runs": number; "stale_live": number; "stale_waits": number; "too_young": number };
export type TypeCounts = { "cancelled": number; "completed": number; "failed": number; "unfinished": number };
export type TypeCounts2 = { "ended": Counts2; "type": string; "unfinished": number };
export type Undo = { "error"?: (Fault | null); "point": string; "status": PointStatus };
export type Use = { "payload"?: unknown };
export type WaitingRun = { "about"?: (string | null); "authenticated"?: (boolean | null); "deadline"?: (string | null); "have"?: (string[] | null); "id": string; "mode": string; "name": string; "point": string; "quorum": number; "run": string; "schema"?: unknown; "since"?: (string | null); "status": Status; "type": string };
export type WaitingSummary = { "again_in": number; "at": string; "exact": boolean; "groups": Group[]; "total": number };
export type Worker = { "about": unknown; "id": string; "seen": string };
export type Workers = { "by_lock": boolean; "items": Worker[] };
export type Workflow = { "definitions": number; "hash": string; "steps": number; "style": string; "type": string; "version"?: (number | null) };

/** Parameters, body and answer of each operation. */
export interface Operations {
  cancelRun: { path: { "id": string }; query: undefined; body: Cancel; answer: Acknowledged };
  cancelTask: { path: { "id": string }; query: undefined; body: Cancel; answer: Acknowledged };
  countRuns: { path: undefined; query: undefined; body: undefined; answer: Counts };
  describe: { path: undefined; query: undefined; body: undefined; answer: unknown };
  docs: { path: undefined; query: undefined; body: undefined; answer: string };
  docsScript: { path: undefined; query: undefined; body: undefined; answer: string };
  docsStyle: { path: undefined; query: undefined; body: undefined; answer: string };
  explainRun: { path: { "id": string }; query: undefined; body: undefined; answer: Explanation };
  explainTask: { path: { "id": string }; query: undefined; body: undefined; answer: Explanation };
  followRun: { path: { "id": string }; query: { "access_token"?: string; "after"?: string }; body: undefined; answer: string };
  followStore: { path: undefined; query: { "partial"?: boolean; "prefix"?: string }; body: undefined; answer: string };
  followTask: { path: { "id": string }; query: { "access_token"?: string; "after"?: string }; body: undefined; answer: string };
  getDefinition: { path: { "type": string; "hash": string }; query: undefined; body: undefined; answer: Definition };
  getObject: { path: undefined; query: { "key": string }; body: undefined; answer: Object };
  getRun: { path: { "id": string }; query: undefined; body: undefined; answer: Run };
  getRunInput: { path: { "id": string }; query: undefined; body: undefined; answer: unknown };
  getRunOutput: { path: { "id": string }; query: { "step"?: string }; body: undefined; answer: unknown };
  getRunResult: { path: { "id": string }; query: { "timeout"?: Span }; body: undefined; answer: unknown };
  getSeries: { path: undefined; query: undefined; body: undefined; answer: Figures };
  getTask: { path: { "id": string }; query: undefined; body: undefined; answer: Run };
  getTaskInput: { path: { "id": string }; query: undefined; body: undefined; answer: unknown };
  getTaskOutput: { path: { "id": string }; query: { "step"?: string }; body: undefined; answer: unknown };
  getTaskResult: { path: { "id": string }; query: { "timeout"?: Span }; body: undefined; answer: unknown };
  health: { path: undefined; query: undefined; body: undefined; answer: Health };
  listDefinitions: { path: { "type": string }; query: undefined; body: undefined; answer: Page6 };
  listHistory: { path: { "id": string }; query: { "after"?: number; "from"?: number; "limit"?: number }; body: undefined; answer: Page2 };
  listIds: { path: undefined; query: { "limit"?: number; "prefix"?: string }; body: undefined; answer: Page7 };
  listKeys: { path: undefined; query: { "after"?: string; "limit"?: number; "prefix"?: string }; body: undefined; answer: Page9 };
  listRuns: { path: undefined; query: { "after"?: string; "limit"?: number; "since"?: Moment; "status"?: string; "type"?: string; "until"?: Moment }; body: undefined; answer: Listing };
  listSignals: { path: { "id": string }; query: { "after"?: string; "limit"?: number; "name"?: string }; body: undefined; answer: Page3 };
  listSteps: { path: { "id": string }; query: { "after"?: string; "limit"?: number; "whole"?: boolean }; body: undefined; answer: Page };
  listTaskHistory: { path: { "id": string }; query: { "after"?: number; "from"?: number; "limit"?: number }; body: undefined; answer: Page2 };
  listTaskSignals: { path: { "id": string }; query: { "after"?: string; "limit"?: number; "name"?: string }; body: undefined; answer: Page3 };
  listTaskSteps: { path: { "id": string }; query: { "after"?: string; "limit"?: number; "whole"?: boolean }; body: undefined; answer: Page };
  listTaskWaits: { path: { "id": string }; query: undefined; body: undefined; answer: Page4 };
  listTasks: { path: undefined; query: { "after"?: string; "limit"?: number; "queue"?: string; "since"?: Moment; "status"?: string; "type"?: string; "until"?: Moment }; body: undefined; answer: Listing };
  listWaiting: { path: undefined; query: { "after"?: string; "limit"?: number; "name"?: string }; body: undefined; answer: Page5 };
  listWaits: { path: { "id": string }; query: undefined; body: undefined; answer: Page4 };
  listWorkers: { path: undefined; query: undefined; body: undefined; answer: Workers };
  listWorkflows: { path: undefined; query: undefined; body: undefined; answer: Page8 };
  makeLink: { path: undefined; query: undefined; body: Make; answer: Made };
  me: { path: undefined; query: undefined; body: undefined; answer: Me };
  metrics: { path: undefined; query: undefined; body: undefined; answer: string };
  migrateRun: { path: { "id": string }; query: undefined; body: Migrate; answer: Acknowledged };
  migrateTask: { path: { "id": string }; query: undefined; body: Migrate; answer: Acknowledged };
  notify: { path: undefined; query: undefined; body: Notify; answer: string };
  pauseRun: { path: { "id": string }; query: undefined; body: Nothing; answer: Acknowledged };
  pauseTask: { path: { "id": string }; query: undefined; body: Nothing; answer: Acknowledged };
  prune: { path: undefined; query: undefined; body: Prune; answer: Pruned };
  ready: { path: undefined; query: undefined; body: undefined; answer: Health };
  restartRun: { path: { "id": string }; query: undefined; body: Restart; answer: Acknowledged };
  restartTask: { path: { "id": string }; query: undefined; body: Restart; answer: Acknowledged };
  resumeRun: { path: { "id": string }; query: undefined; body: Resume; answer: Acknowledged };
  resumeTask: { path: { "id": string }; query: undefined; body: Resume; answer: Acknowledged };
  revokeLink: { path: undefined; query: undefined; body: Revoke; answer: Revoked };
  sendSignal: { path: { "id": string; "name": string }; query: undefined; body: Send; answer: Sent };
  sendSignals: { path: undefined; query: undefined; body: SendMany; answer: Outcomes };
  sendTaskSignal: { path: { "id": string; "name": string }; query: undefined; body: Send; answer: Sent };
  showLink: { path: { "token": string }; query: undefined; body: undefined; answer: Shown };
  startRun: { path: undefined; query: undefined; body: Start; answer: unknown | Started };
  submitTask: { path: undefined; query: undefined; body: Submit; answer: unknown | Started };
  summarizeRuns: { path: undefined; query: undefined; body: undefined; answer: RunsSummary };
  summarizeWaiting: { path: undefined; query: undefined; body: undefined; answer: WaitingSummary };
  sweep: { path: undefined; query: undefined; body: Sweep; answer: Swept };
  useLink: { path: { "token": string }; query: undefined; body: Use; answer: Sent };
  waitForRun: { path: { "id": string }; query: { "timeout"?: Span }; body: undefined; answer: Run };
  waitForTask: { path: { "id": string }; query: { "timeout"?: Span }; body: undefined; answer: Run };
}

/** Method and path of each operation; `keyed` ones take an idempotency key. */
export const OPERATIONS: { [K in keyof Operations]: { method: string; path: string; keyed: boolean } } = {
  cancelRun: { method: "POST", path: "/v1/runs/{id}/cancel", keyed: false },
  cancelTask: { method: "POST", path: "/v1/tasks/{id}/cancel", keyed: false },
  countRuns: { method: "GET", path: "/v1/counts", keyed: false },
  describe: { method: "GET", path: "/v1/openapi.json", keyed: false },
  docs: { method: "GET", path: "/v1/docs", keyed: false },
  docsScript: { method: "GET", path: "/v1/docs/page.js", keyed: false },
  docsStyle: { method: "GET", path: "/v1/docs/page.css", keyed: false },
  explainRun: { method: "GET", path: "/v1/runs/{id}/explain", keyed: false },
  explainTask: { method: "GET", path: "/v1/tasks/{id}/explain", keyed: false },
  followRun: { method: "GET", path: "/v1/runs/{id}/events", keyed: false },
  followStore: { method: "GET", path: "/v1/changes", keyed: false },
  followTask: { method: "GET", path: "/v1/tasks/{id}/events", keyed: false },
  getDefinition: { method: "GET", path: "/v1/definitions/{type}/{hash}", keyed: false },
  getObject: { method: "GET", path: "/v1/store/object", keyed: false },
  getRun: { method: "GET", path: "/v1/runs/{id}", keyed: false },
  getRunInput: { method: "GET", path: "/v1/runs/{id}/input", keyed: false },
  getRunOutput: { method: "GET", path: "/v1/runs/{id}/output", keyed: false },
  getRunResult: { method: "GET", path: "/v1/runs/{id}/result", keyed: false },
  getSeries: { method: "GET", path: "/v1/system/series", keyed: false },
  getTask: { method: "GET", path: "/v1/tasks/{id}", keyed: false },
  getTaskInput: { method: "GET", path: "/v1/tasks/{id}/input", keyed: false },
  getTaskOutput: { method: "GET", path: "/v1/tasks/{id}/output", keyed: false },
  getTaskResult: { method: "GET", path: "/v1/tasks/{id}/result", keyed: false },
  health: { method: "GET", path: "/v1/health", keyed: false },
  listDefinitions: { method: "GET", path: "/v1/definitions/{type}", keyed: false },
  listHistory: { method: "GET", path: "/v1/runs/{id}/history", keyed: false },
  listIds: { method: "GET", path: "/v1/ids", keyed: false },
  listKeys: { method: "GET", path: "/v1/store", keyed: false },
  listRuns: { method: "GET", path: "/v1/runs", keyed: false },
  listSignals: { method: "GET", path: "/v1/runs/{id}/signals", keyed: false },
  listSteps: { method: "GET", path: "/v1/runs/{id}/steps", keyed: false },
  listTaskHistory: { method: "GET", path: "/v1/tasks/{id}/history", keyed: false },
  listTaskSignals: { method: "GET", path: "/v1/tasks/{id}/signals", keyed: false },
  listTaskSteps: { method: "GET", path: "/v1/tasks/{id}/steps", keyed: false },
  listTaskWaits: { method: "GET", path: "/v1/tasks/{id}/waiting", keyed: false },
  listTasks: { method: "GET", path: "/v1/tasks", keyed: false },
  listWaiting: { method: "GET", path: "/v1/waiting", keyed: false },
  listWaits: { method: "GET", path: "/v1/runs/{id}/waiting", keyed: false },
  listWorkers: { method: "GET", path: "/v1/workers", keyed: false },
  listWorkflows: { method: "GET", path: "/v1/definitions", keyed: false },
  makeLink: { method: "POST", path: "/v1/links", keyed: false },
  me: { method: "GET", path: "/v1/me", keyed: false },
  metrics: { method: "GET", path: "/metrics", keyed: false },
  migrateRun: { method: "POST", path: "/v1/runs/{id}/migrate", keyed: false },
  migrateTask: { method: "POST", path: "/v1/tasks/{id}/migrate", keyed: false },
  notify: { method: "POST", path: "/v1/notify", keyed: false },
  pauseRun: { method: "POST", path: "/v1/runs/{id}/pause", keyed: false },
  pauseTask: { method: "POST", path: "/v1/tasks/{id}/pause", keyed: false },
  prune: { method: "POST", path: "/v1/prune", keyed: false },
  ready: { method: "GET", path: "/v1/ready", keyed: false },
  restartRun: { method: "POST", path: "/v1/runs/{id}/restart", keyed: false },
  restartTask: { method: "POST", path: "/v1/tasks/{id}/restart", keyed: false },
  resumeRun: { method: "POST", path: "/v1/runs/{id}/resume", keyed: false },
  resumeTask: { method: "POST", path: "/v1/tasks/{id}/resume", keyed: false },
  revokeLink: { method: "POST", path: "/v1/links/revoke", keyed: false },
  sendSignal: { method: "POST", path: "/v1/runs/{id}/signals/{name}", keyed: true },
  sendSignals: { method: "POST", path: "/v1/signals", keyed: true },
  sendTaskSignal: { method: "POST", path: "/v1/tasks/{id}/signals/{name}", keyed: true },
  showLink: { method: "GET", path: "/v1/links/{token}", keyed: false },
  startRun: { method: "POST", path: "/v1/runs", keyed: true },
  submitTask: { method: "POST", path: "/v1/tasks", keyed: true },
  summarizeRuns: { method: "GET", path: "/v1/runs/summary", keyed: false },
  summarizeWaiting: { method: "GET", path: "/v1/waiting/summary", keyed: false },
  sweep: { method: "POST", path: "/v1/sweep", keyed: false },
  useLink: { method: "POST", path: "/v1/links/{token}", keyed: false },
  waitForRun: { method: "GET", path: "/v1/runs/{id}/wait", keyed: false },
  waitForTask: { method: "GET", path: "/v1/tasks/{id}/wait", keyed: false },
};
