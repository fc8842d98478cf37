//! The route table: every operation of the API.

mod board;
mod changes;
mod control;
mod events;
mod explain;
mod figures;
mod ids;
mod links;
mod me;
mod objects;
mod runs;
mod shape;
mod signals;
mod system;
mod tasks;
mod upkeep;

use serde_json::Value;

use crate::auth::Need;
use crate::problem::Code;
use crate::route::Route;
use crate::wire::Page;

/// Returns every route of the API.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = runs();
    routes.extend(controls());
    routes.extend(signals());
    routes.extend(tasks());
    routes.extend(parts_of_tasks());
    routes.extend(upkeep());
    routes.extend(system());
    routes.extend(dashboard());
    routes
}

fn runs() -> Vec<Route> {
    use Code::{Conflict, Gone, NotFound, RunCancelled, RunFailed, Stopped, TimedOut};
    vec![
        Route::post("/v1/runs", Need::Write, runs::start)
            .named("startRun", "Start a run")
            .more("The same id, or `Idempotency-Key`, with the same type and input is the same run; with another it is a conflict. \
                With `wait`, one request starts a run and answers with its result.")
            .slow()
            .keyed()
            .body::<runs::Start>()
            .answers::<Value>(200, "Result of the run, with `wait`")
            .answers::<runs::Started>(201, "The run is durable")
            .answers::<runs::Started>(202, "The run is durable, and did not finish within `wait`; request its `result`")
            .problems(&[Conflict, Gone, RunCancelled, RunFailed]),
        Route::get("/v1/runs", Need::Read, runs::list)
            .named("listRuns", "List runs")
            .more("Unfinished runs first, then finished runs, newest first.")
            .query::<runs::ListQuery>()
            .answers::<runs::Listing>(200, "A page of runs"),
        Route::get("/v1/runs/{id}", Need::Read, runs::get)
            .named("getRun", "Get a run")
            .more("`requests` counts the store requests of its turns, `dollars` is their price on a bucket at the list prices of S3.")
            .answers::<shape::Run>(200, "The run")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/wait", Need::Read, runs::wait)
            .named("waitForRun", "Wait until a run finishes")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<shape::Run>(200, "The finished run")
            .answers::<shape::Run>(202, "The run, which has not finished yet; repeat the request")
            .problems(&[NotFound, Gone, Stopped]),
        Route::get("/v1/runs/{id}/result", Need::Read, runs::result)
            .named("getRunResult", "Wait for the result of a run")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<Value>(200, "The result")
            .problems(&[NotFound, Gone, RunFailed, RunCancelled, TimedOut, Stopped]),
        Route::get("/v1/runs/{id}/input", Need::Read, runs::input)
            .named("getRunInput", "Get the input of a run")
            .answers::<Value>(200, "The input")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/output", Need::Read, runs::output)
            .named("getRunOutput", "Get the output of a run or of one of its steps")
            .query::<runs::OutputQuery>()
            .answers::<Value>(200, "The output")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/steps", Need::Read, runs::steps)
            .named("listSteps", "List the steps of a run")
            .more("In start order.")
            .query::<runs::StepsQuery>()
            .answers::<Page<shape::Step>>(200, "A page of steps")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/events", Need::Read, events::follow)
            .named("followRun", "Stream the events of a run")
            .more("Server-sent events: `id` is the entry and the position in it, `event` the event's type, `data` is \
                `{seq, place, count, by, at, requests, event}`: the entry, the position of the event and the number of events in it, \
                its writer, its time and its store requests. The last event is `end`, with the `reason` `ended`, `stopped` or `problem`.")
            .slow()
            .resumable()
            .query::<events::EventsQuery>()
            .streams::<shape::Sse>(200, "The event stream")
            .gives(204, "", "The run has finished and all of its events were received")
            .problems(&[NotFound, Gone, Code::InvalidHeader]),
        Route::get("/v1/runs/{id}/history", Need::Read, runs::history)
            .named("listHistory", "List the log entries of a run")
            .query::<runs::HistoryQuery>()
            .answers::<Page<shape::Entry>>(200, "A page of log entries")
            .problems(&[NotFound, Gone]),
    ]
}

/// Adds the answers shared by control requests to a run or task, which its worker carries out.
fn asked(route: Route) -> Route {
    let problems = [Code::NotFound, Code::Gone, Code::NotRunning];
    route.answers::<control::Acknowledged>(202, "The request is durable").problems(&problems)
}

fn controls() -> Vec<Route> {
    use Code::Conflict;
    vec![
        asked(Route::post("/v1/runs/{id}/cancel", Need::Write, control::cancel).body::<control::Cancel>())
            .audited("cancel")
            .named("cancelRun", "Cancel a run")
            .more("Completed steps are compensated in reverse order."),
        asked(Route::post("/v1/runs/{id}/pause", Need::Write, control::pause).body::<control::Nothing>())
            .audited("pause")
            .named("pauseRun", "Pause a run")
            .more("Running steps are not interrupted."),
        asked(Route::post("/v1/runs/{id}/resume", Need::Write, control::resume).body::<control::Resume>())
            .audited("resume")
            .named("resumeRun", "Resume a paused run")
            .problems(&[Conflict]),
        asked(Route::post("/v1/runs/{id}/restart", Need::Write, control::restart).body::<control::Restart>())
            .audited("restart")
            .named("restartRun", "Restart a finished or paused run"),
        asked(Route::post("/v1/runs/{id}/migrate", Need::Write, control::migrate).body::<control::Migrate>())
            .audited("migrate")
            .named("migrateRun", "Migrate a paused run to changed workflow code"),
    ]
}

fn signals() -> Vec<Route> {
    use Code::{Conflict, Gone, InvalidName, InvalidPayload, NotFound, NotRunning, NotWaiting, Stopped, TimedOut};
    vec![
        Route::post("/v1/runs/{id}/signals/{name}", Need::Signal, signals::send)
            .named("sendSignal", "Send a signal to a run")
            .more("Returns once the signal is durable. An acknowledged signal is never lost.")
            .slow()
            .keyed()
            .body::<signals::Send>()
            .answers::<signals::Sent>(200, "The signal is durable")
            .problems(&[NotFound, Gone, Conflict, NotRunning, InvalidName, InvalidPayload])
            .problems(&[NotWaiting, Code::UnknownPoint, Code::RejectedSender, TimedOut, Stopped]),
        Route::post("/v1/signals", Need::Signal, signals::send_many)
            .named("sendSignals", "Send many signals")
            .more("A rejected signal does not affect the others.")
            .keyed()
            .body::<signals::SendMany>()
            .answers::<signals::Outcomes>(200, "The outcome of each signal, in order"),
        Route::get("/v1/runs/{id}/signals", Need::Read, signals::inbox)
            .named("listSignals", "List the signals of a run and their outcomes")
            .query::<signals::NamedPage>()
            .answers::<Page<shape::Signal>>(200, "A page of signals")
            .problems(&[NotFound, Gone, InvalidName]),
        Route::get("/v1/runs/{id}/waiting", Need::Read, signals::waiting_of)
            .named("listWaits", "List the open waits of a run")
            .answers::<Page<shape::OpenWait>>(200, "The open waits, oldest first")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/waiting/summary", Need::Read, board::waiting_summary)
            .named("summarizeWaiting", "Count open waits by signal")
            .more("Counted from the index, which is listed at most once per interval, independent of the number of clients.")
            .answers::<board::WaitingSummary>(200, "The counts"),
        Route::get("/v1/waiting", Need::Read, board::waiting)
            .named("listWaiting", "List the runs that wait for a signal")
            .more("Waits that a run opened together share a cursor, so a page may exceed `limit` by a few.")
            .query::<signals::NamedPage>()
            .answers::<Page<shape::WaitingRun>>(200, "A page of waiting runs")
            .problems(&[InvalidName]),
        Route::post("/v1/links", Need::Signal, links::make)
            .audited("link.make")
            .named("makeLink", "Create a signed link that sends a signal")
            .body::<links::Make>()
            .answers::<links::Made>(201, "The link; anyone who has it can send the signal")
            .problems(&[NotFound, Gone, NotRunning, InvalidName]),
        Route::post("/v1/links/revoke", Need::Signal, links::revoke)
            .audited("link.revoke")
            .named("revokeLink", "Revoke a link")
            .more(
                "Identified by `token`, or with the scope `admin` by `run` and `id`. Takes effect immediately.",
            )
            .body::<links::Revoke>()
            .answers::<links::Revoked>(200, "The link is revoked")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/links/{token}", Need::Public, links::show)
            .named("showLink", "Show a link")
            .more("Returns an HTML form if the client accepts `text/html`. Sends nothing.")
            .answers::<links::Shown>(200, "Permissions of the link")
            .problems(&[Gone, Code::TooManyAttempts]),
        Route::post("/v1/links/{token}", Need::Public, links::using)
            .audited("link.use")
            .named("useLink", "Use a link")
            .more("Also accepts the HTML form, and then returns a page.")
            .body::<links::Use>()
            .answers::<signals::Sent>(200, "The signal is durable")
            .problems(&[Gone, Conflict, NotFound, NotRunning, InvalidPayload, Code::TooManyAttempts]),
    ]
}

fn tasks() -> Vec<Route> {
    use Code::{Conflict, Gone, NotFound, RunCancelled, RunFailed, Stopped, TimedOut};
    vec![
        Route::post("/v1/tasks", Need::Tasks, tasks::submit)
            .named("submitTask", "Submit a task")
            .more(
                "The same key of the same type is the same task; with another input it is a conflict. With `wait`, one \
                request submits a task and answers with its result.",
            )
            .slow()
            .keyed()
            .body::<tasks::Submit>()
            .answers::<Value>(200, "Result of the task, with `wait`")
            .answers::<runs::Started>(201, "The task is durable")
            .answers::<runs::Started>(202, "The task is durable, and did not finish within `wait`; request its `result`")
            .problems(&[Conflict, Gone, RunCancelled, RunFailed]),
        Route::get("/v1/tasks", Need::Tasks, tasks::list)
            .named("listTasks", "List tasks")
            .query::<tasks::ListQuery>()
            .answers::<runs::Listing>(200, "A page of tasks"),
        Route::get("/v1/tasks/{id}", Need::Tasks, runs::get)
            .named("getTask", "Get a task")
            .more("`requests` counts the store requests of its turns, `dollars` is their price on a bucket at the list prices of S3.")
            .answers::<shape::Run>(200, "The task")
            .problems(&[NotFound, Gone]),
        asked(Route::post("/v1/tasks/{id}/cancel", Need::Tasks, control::cancel).body::<control::Cancel>())
            .audited("cancel")
            .named("cancelTask", "Cancel a task"),
        Route::get("/v1/tasks/{id}/wait", Need::Tasks, runs::wait)
            .named("waitForTask", "Wait until a task finishes")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<shape::Run>(200, "The finished task")
            .answers::<shape::Run>(202, "The task, which has not finished yet; repeat the request")
            .problems(&[NotFound, Gone, Stopped]),
        Route::get("/v1/tasks/{id}/result", Need::Tasks, runs::result)
            .named("getTaskResult", "Wait for the result of a task")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<Value>(200, "The result")
            .problems(&[NotFound, Gone, RunFailed, RunCancelled, TimedOut, Stopped]),
    ]
}

/// Routes for the parts and control requests of a task; the same as for a run.
fn parts_of_tasks() -> Vec<Route> {
    use Code::{Conflict, Gone, InvalidName, InvalidPayload, NotFound, NotRunning, NotWaiting, Stopped, TimedOut};
    let seen = |route: Route| route.problems(&[NotFound, Gone]);
    vec![
        seen(Route::get("/v1/tasks/{id}/explain", Need::Tasks, explain::explain))
            .named("explainTask", "Explain why a task does not proceed")
            .answers::<shape::Explanation>(200, "The explanation"),
        seen(Route::get("/v1/tasks/{id}/input", Need::Tasks, runs::input).answers::<Value>(200, "The input"))
            .named("getTaskInput", "Get the input of a task"),
        seen(Route::get("/v1/tasks/{id}/output", Need::Tasks, runs::output).answers::<Value>(200, "The output"))
            .named("getTaskOutput", "Get the output of a task")
            .query::<runs::OutputQuery>(),
        seen(Route::get("/v1/tasks/{id}/steps", Need::Tasks, runs::steps))
            .named("listTaskSteps", "List the steps of a task")
            .query::<runs::StepsQuery>()
            .answers::<Page<shape::Step>>(200, "A page of steps"),
        seen(Route::get("/v1/tasks/{id}/history", Need::Tasks, runs::history))
            .named("listTaskHistory", "List the log entries of a task")
            .query::<runs::HistoryQuery>()
            .answers::<Page<shape::Entry>>(200, "A page of log entries"),
        seen(Route::get("/v1/tasks/{id}/events", Need::Tasks, events::follow))
            .named("followTask", "Stream the events of a task")
            .more("Same format as for runs.")
            .slow()
            .resumable()
            .query::<events::EventsQuery>()
            .streams::<shape::Sse>(200, "The event stream")
            .gives(204, "", "The task has finished and all of its events were received")
            .problems(&[Code::InvalidHeader]),
        seen(Route::get("/v1/tasks/{id}/signals", Need::Tasks, signals::inbox))
            .named("listTaskSignals", "List the signals of a task and their outcomes")
            .query::<signals::NamedPage>()
            .answers::<Page<shape::Signal>>(200, "A page of signals")
            .problems(&[InvalidName]),
        seen(Route::get("/v1/tasks/{id}/waiting", Need::Tasks, signals::waiting_of))
            .named("listTaskWaits", "List the open waits of a task")
            .answers::<Page<shape::OpenWait>>(200, "The open waits, oldest first"),
        Route::post("/v1/tasks/{id}/signals/{name}", Need::Signal, signals::send)
            .named("sendTaskSignal", "Send a signal to a task")
            .slow()
            .keyed()
            .body::<signals::Send>()
            .answers::<signals::Sent>(200, "The signal is durable")
            .problems(&[NotFound, Gone, Conflict, NotRunning, InvalidName, InvalidPayload])
            .problems(&[NotWaiting, Code::UnknownPoint, Code::RejectedSender, TimedOut, Stopped]),
        asked(Route::post("/v1/tasks/{id}/pause", Need::Tasks, control::pause).body::<control::Nothing>())
            .audited("pause")
            .named("pauseTask", "Pause a task"),
        asked(Route::post("/v1/tasks/{id}/resume", Need::Tasks, control::resume).body::<control::Resume>())
            .audited("resume")
            .named("resumeTask", "Resume a paused task")
            .problems(&[Conflict]),
        asked(Route::post("/v1/tasks/{id}/restart", Need::Tasks, control::restart).body::<control::Restart>())
            .audited("restart")
            .named("restartTask", "Restart a finished or paused task"),
        asked(Route::post("/v1/tasks/{id}/migrate", Need::Tasks, control::migrate).body::<control::Migrate>())
            .audited("migrate")
            .named("migrateTask", "Migrate a paused task to changed code"),
    ]
}

fn upkeep() -> Vec<Route> {
    use Code::{Stopped, TimedOut};
    vec![
        Route::get("/v1/counts", Need::Read, upkeep::counts)
            .named("countRuns", "Count runs by type and status")
            .more("From keys alone: no run is read, and a run that was restarted is counted at its earlier end too until that is \
                removed. Tasks are called `task:QUEUE:TYPE`, and are left out without the scope `tasks`.")
            .answers::<shape::Counts>(200, "The counts"),
        Route::post("/v1/prune", Need::Admin, upkeep::prune)
            .audited("prune")
            .named("prune", "Delete old finished runs and tasks")
            .more("Unfinished runs are never deleted. A long deletion is done in parts: repeat the request while `more` is true.")
            .slow()
            .body::<upkeep::Prune>()
            .answers::<upkeep::Pruned>(200, "Numbers of deleted runs and objects")
            .problems(&[Stopped]),
        Route::post("/v1/sweep", Need::Admin, upkeep::sweep)
            .audited("sweep")
            .named("sweep", "Find orphaned runs and reschedule them")
            .more("One pass. Workers and servers also do this in the background.")
            .slow()
            .body::<upkeep::Sweep>()
            .answers::<shape::Swept>(200, "Numbers of checked and repaired runs")
            .problems(&[TimedOut, Stopped]),
    ]
}

/// Routes for the dashboard and for operators that concern the whole store.
fn dashboard() -> Vec<Route> {
    vec![
        Route::get("/v1/runs/summary", Need::Read, board::runs_summary)
            .named("summarizeRuns", "Count runs")
            .more("Unfinished ones by type, and ends of the last 24 hours by quarter of an hour. From the indexes alone, which are \
                listed at most once per interval.")
            .answers::<board::RunsSummary>(200, "The counts"),
        Route::get("/v1/runs/{id}/explain", Need::Read, explain::explain)
            .named("explainRun", "Explain why a run does not proceed")
            .more("For each open step: its requirements, what is satisfied, and the next action.")
            .answers::<shape::Explanation>(200, "The explanation")
            .problems(&[Code::NotFound, Code::Gone]),
        Route::get("/v1/me", Need::Token, me::me)
            .named("me", "Show the caller and the server")
            .plain()
            .answers::<me::Me>(200, "Name, scopes and server"),
        Route::get("/v1/ids", Need::Read, ids::ids)
            .named("listIds", "Find runs and tasks by id prefix")
            .more("Includes finished runs. Tasks need the scope `tasks`.")
            .query::<ids::IdsQuery>()
            .answers::<Page<ids::Found>>(200, "A page of ids"),
        Route::get("/v1/definitions", Need::Read, ids::workflows)
            .named("listWorkflows", "List registered workflows")
            .answers::<Page<ids::Workflow>>(200, "The workflows"),
        Route::get("/v1/definitions/{type}/{hash}", Need::Read, ids::definition)
            .named("getDefinition", "Show one definition of a workflow")
            .answers::<shape::Definition>(200, "The definition")
            .problems(&[Code::NotFound]),
        Route::get("/v1/workers", Need::Read, figures::workers)
            .named("listWorkers", "List the workers of the store")
            .answers::<figures::Workers>(200, "The workers"),
        Route::get("/v1/system/series", Need::Read, figures::series)
            .named("getSeries", "Get metrics of this process over the last hour")
            .plain()
            .answers::<figures::Figures>(200, "The metrics"),
        Route::get("/v1/store", Need::Admin, objects::list)
            .named("listKeys", "List the keys of the store")
            .query::<objects::KeysQuery>()
            .answers::<Page<objects::Listed>>(200, "A page of keys"),
        Route::get("/v1/store/object", Need::Admin, objects::get)
            .named("getObject", "Read an object of the store")
            .query::<objects::ObjectQuery>()
            .answers::<objects::Object>(200, "The object")
            .problems(&[Code::NotFound]),
    ]
}

fn system() -> Vec<Route> {
    vec![
        Route::get("/v1/definitions/{type}", Need::Read, system::definitions)
            .named("listDefinitions", "List the definitions of a workflow, newest last")
            .answers::<Page<shape::Definition>>(200, "The definitions")
            .problems(&[Code::NotFound]),
        Route::get("/v1/changes", Need::Store, changes::follow)
            .named("followStore", "Stream the keys written to the store")
            .more("For remote workers, whose store this is (`--store https://…/s3`). Server-sent events: `put`, whose `data` is \
                the keys, one to a line; `missed`, after which one has to list; and at last `end`. Takes an access key of `/s3` \
                and its secret as HTTP Basic as well. The header `wigwag-notifications` says whether all puts are announced (`complete`).")
            .slow()
            .query::<changes::ChangesQuery>()
            .streams::<shape::Sse>(200, "Keys written from now on")
            .gives(204, "", "The store has no notifications; list it instead"),
        Route::post("/v1/notify", Need::Store, changes::notify)
            .named("notify", "Notify subscribers of this server about writes")
            .more("For processes that write to the server's bucket past it. Nothing is stored; on a store that announces all \
                writes by itself it has no effect. Takes an access key of `/s3` as HTTP Basic, and the key of the server's own \
                record in the bucket as a bearer token.")
            .body::<changes::Notify>()
            .gives(204, "", "The subscribers were notified"),
        Route::get("/v1/health", Need::Public, system::health)
            .named("health", "Liveness check")
            .plain()
            .answers::<system::Health>(200, "Healthy"),
        Route::get("/v1/ready", Need::Public, system::ready)
            .named("ready", "Readiness check")
            .answers::<system::Health>(200, "Healthy")
            .problems(&[Code::Stopped]),
        Route::get("/metrics", Need::Admin, system::metrics)
            .named("metrics", "Prometheus metrics")
            .plain()
            .gives(200, "text/plain", "The metrics")
            .problems(&[Code::NotFound]),
        Route::get("/v1/openapi.json", Need::Public, system::description)
            .named("describe", "OpenAPI description")
            .plain()
            .answers::<Value>(200, "OpenAPI 3.1"),
        Route::get("/v1/docs", Need::Public, system::docs).named("docs", "Interactive API documentation").plain().gives(
            200,
            "text/html",
            "The page",
        ),
        Route::get("/v1/docs/page.js", Need::Public, system::docs_script)
            .named("docsScript", "Script of the API documentation")
            .plain()
            .gives(200, "text/javascript", "The script"),
        Route::get("/v1/docs/page.css", Need::Public, system::docs_style)
            .named("docsStyle", "Style sheet of the API documentation")
            .plain()
            .gives(200, "text/css", "The style"),
    ]
}
