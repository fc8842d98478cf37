//! The route table: the whole API on one screen, and a little more.

mod changes;
mod control;
mod events;
mod links;
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

/// Every route. What is not here is not served.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = runs();
    routes.extend(controls());
    routes.extend(signals());
    routes.extend(tasks());
    routes.extend(parts_of_tasks());
    routes.extend(upkeep());
    routes.extend(system());
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
            .answers::<Value>(200, "What the run gave, if that was waited for")
            .answers::<runs::Started>(201, "The run is durable")
            .answers::<runs::Started>(202, "The run is durable, and has not ended in this time: ask for its `result`")
            .problems(&[Conflict, Gone, RunCancelled, RunFailed]),
        Route::get("/v1/runs", Need::Read, runs::list)
            .named("listRuns", "List runs")
            .more("Unfinished ones first, then finished ones, the newest first.")
            .query::<runs::ListQuery>()
            .answers::<runs::Listing>(200, "Some runs"),
        Route::get("/v1/runs/{id}", Need::Read, runs::get)
            .named("getRun", "Look at a run")
            .more("`requests` is what its turns asked of the store, `dollars` what a bucket takes for that at the list prices of S3.")
            .answers::<shape::Run>(200, "The run as it is")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/wait", Need::Read, runs::wait)
            .named("waitForRun", "Wait for a run's end")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<shape::Run>(200, "The run as it ended")
            .answers::<shape::Run>(202, "The run as it is: it has not ended in this time. Ask again")
            .problems(&[NotFound, Gone, Stopped]),
        Route::get("/v1/runs/{id}/result", Need::Read, runs::result)
            .named("getRunResult", "Wait for a run's result")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<Value>(200, "What the run gave")
            .problems(&[NotFound, Gone, RunFailed, RunCancelled, TimedOut, Stopped]),
        Route::get("/v1/runs/{id}/input", Need::Read, runs::input)
            .named("getRunInput", "What a run was started with")
            .answers::<Value>(200, "The input")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/output", Need::Read, runs::output)
            .named("getRunOutput", "What a run, or one of its steps, has given")
            .query::<runs::OutputQuery>()
            .answers::<Value>(200, "The output")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/steps", Need::Read, runs::steps)
            .named("listSteps", "List a run's steps and other points")
            .more("In the order in which they began.")
            .query::<runs::StepsQuery>()
            .answers::<Page<shape::Step>>(200, "Some points")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/runs/{id}/events", Need::Read, events::follow)
            .named("followRun", "Follow a run's events as they happen")
            .more("Server-sent events: `id` is the entry and the place in it, `event` the event's type, `data` is \
                `{seq, place, count, by, at, requests, event}`: \
                which entry, which event of how many in it, who wrote it and when, and what it asked of the store. The last is `end`, with the `reason` `ended`, `stopped` or `problem`.")
            .slow()
            .resumable()
            .query::<events::EventsQuery>()
            .streams::<shape::Sse>(200, "The events")
            .gives(204, "", "The run has ended, and all of its events were seen")
            .problems(&[NotFound, Gone, Code::InvalidHeader]),
        Route::get("/v1/runs/{id}/history", Need::Read, runs::history)
            .named("listHistory", "Read a run's log")
            .query::<runs::HistoryQuery>()
            .answers::<Page<shape::Entry>>(200, "Some entries")
            .problems(&[NotFound, Gone]),
    ]
}

/// What is asked of a run or a task, and done by its worker.
fn asked(route: Route) -> Route {
    let problems = [Code::NotFound, Code::Gone, Code::NotRunning];
    route.answers::<control::Acknowledged>(202, "It is recorded, and done soon").problems(&problems)
}

fn controls() -> Vec<Route> {
    use Code::Conflict;
    vec![
        asked(Route::post("/v1/runs/{id}/cancel", Need::Write, control::cancel).body::<control::Cancel>())
            .audited("cancel")
            .named("cancelRun", "Cancel a run")
            .more("What was done is undone, in reverse order."),
        asked(Route::post("/v1/runs/{id}/pause", Need::Write, control::pause).body::<control::Nothing>())
            .audited("pause")
            .named("pauseRun", "Pause a run")
            .more("A step that runs is not interrupted."),
        asked(Route::post("/v1/runs/{id}/resume", Need::Write, control::resume).body::<control::Resume>())
            .audited("resume")
            .named("resumeRun", "Resume a paused run")
            .problems(&[Conflict]),
        asked(Route::post("/v1/runs/{id}/restart", Need::Write, control::restart).body::<control::Restart>())
            .audited("restart")
            .named("restartRun", "Restart a run that has ended or is paused"),
        asked(Route::post("/v1/runs/{id}/migrate", Need::Write, control::migrate).body::<control::Migrate>())
            .audited("migrate")
            .named("migrateRun", "Bring a paused run to changed code"),
    ]
}

fn signals() -> Vec<Route> {
    use Code::{Conflict, Gone, InvalidName, InvalidPayload, NotFound, NotRunning, NotWaiting, Stopped, TimedOut};
    vec![
        Route::post("/v1/runs/{id}/signals/{name}", Need::Signal, signals::send)
            .named("sendSignal", "Send a signal to a run")
            .more("Answered when the signal is durable: from then on it is never lost.")
            .slow()
            .keyed()
            .body::<signals::Send>()
            .answers::<signals::Sent>(200, "The signal is durable")
            .problems(&[NotFound, Gone, Conflict, NotRunning, InvalidName, InvalidPayload])
            .problems(&[NotWaiting, Code::UnknownPoint, Code::RejectedSender, TimedOut, Stopped]),
        Route::post("/v1/signals", Need::Signal, signals::send_many)
            .named("sendSignals", "Send many signals")
            .more("One that cannot be sent stops none of the others.")
            .keyed()
            .body::<signals::SendMany>()
            .answers::<signals::Outcomes>(200, "What became of each, in order"),
        Route::get("/v1/runs/{id}/signals", Need::Read, signals::inbox)
            .named("listSignals", "List a run's signals, and what became of each")
            .query::<signals::NamedPage>()
            .answers::<Page<shape::Signal>>(200, "Some signals")
            .problems(&[NotFound, Gone, InvalidName]),
        Route::get("/v1/runs/{id}/waiting", Need::Read, signals::waiting_of)
            .named("listWaits", "List what a run waits for")
            .answers::<Page<shape::OpenWait>>(200, "The waits that are open, the earliest first")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/waiting", Need::Read, signals::waiting)
            .named("listWaiting", "List the runs that wait for a signal")
            .more("Waits that a run opened together share a place, so that a page may hold a few more than asked.")
            .query::<signals::NamedPage>()
            .answers::<Page<shape::WaitingRun>>(200, "Some of those that wait")
            .problems(&[InvalidName]),
        Route::post("/v1/links", Need::Signal, links::make)
            .audited("link.make")
            .named("makeLink", "Make a link that sends a signal")
            .body::<links::Make>()
            .answers::<links::Made>(201, "Whoever has it may send the signal")
            .problems(&[NotFound, Gone, NotRunning, InvalidName]),
        Route::post("/v1/links/revoke", Need::Signal, links::revoke)
            .audited("link.revoke")
            .named("revokeLink", "Revoke a link")
            .more(
                "Named by its `token`, or, with the scope `admin`, by `run` and `id`. The link stops working at once.",
            )
            .body::<links::Revoke>()
            .answers::<links::Revoked>(200, "It is revoked")
            .problems(&[NotFound, Gone]),
        Route::get("/v1/links/{token}", Need::Public, links::show)
            .named("showLink", "Look at a link")
            .more("A page with a button for those who accept `text/html`. Nothing is sent.")
            .answers::<links::Shown>(200, "What it may do")
            .problems(&[Gone, Code::TooManyAttempts]),
        Route::post("/v1/links/{token}", Need::Public, links::using)
            .audited("link.use")
            .named("useLink", "Use a link")
            .more("Takes the form of the page too, and then answers with a page.")
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
            .answers::<Value>(200, "What the task gave, if that was waited for")
            .answers::<runs::Started>(201, "The task is durable")
            .answers::<runs::Started>(202, "The task is durable, and has not ended in this time: ask for its `result`")
            .problems(&[Conflict, Gone, RunCancelled, RunFailed]),
        Route::get("/v1/tasks", Need::Tasks, tasks::list)
            .named("listTasks", "List tasks")
            .query::<tasks::ListQuery>()
            .answers::<runs::Listing>(200, "Some tasks"),
        Route::get("/v1/tasks/{id}", Need::Tasks, runs::get)
            .named("getTask", "Look at a task")
            .more("`requests` is what its turns asked of the store, `dollars` what a bucket takes for that at the list prices of S3.")
            .answers::<shape::Run>(200, "The task as it is")
            .problems(&[NotFound, Gone]),
        asked(Route::post("/v1/tasks/{id}/cancel", Need::Tasks, control::cancel).body::<control::Cancel>())
            .audited("cancel")
            .named("cancelTask", "Cancel a task"),
        Route::get("/v1/tasks/{id}/wait", Need::Tasks, runs::wait)
            .named("waitForTask", "Wait for a task's end")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<shape::Run>(200, "The task as it ended")
            .answers::<shape::Run>(202, "The task as it is: it has not ended in this time. Ask again")
            .problems(&[NotFound, Gone, Stopped]),
        Route::get("/v1/tasks/{id}/result", Need::Tasks, runs::result)
            .named("getTaskResult", "Wait for a task's result")
            .slow()
            .query::<runs::WaitQuery>()
            .answers::<Value>(200, "What the task gave")
            .problems(&[NotFound, Gone, RunFailed, RunCancelled, TimedOut, Stopped]),
    ]
}

/// What there is to see of a task, and what else is asked of it: the same as of a run.
fn parts_of_tasks() -> Vec<Route> {
    use Code::{Conflict, Gone, InvalidName, InvalidPayload, NotFound, NotRunning, NotWaiting, Stopped, TimedOut};
    let seen = |route: Route| route.problems(&[NotFound, Gone]);
    vec![
        seen(Route::get("/v1/tasks/{id}/input", Need::Tasks, runs::input).answers::<Value>(200, "The input"))
            .named("getTaskInput", "What a task was submitted with"),
        seen(Route::get("/v1/tasks/{id}/output", Need::Tasks, runs::output).answers::<Value>(200, "The output"))
            .named("getTaskOutput", "What a task has given")
            .query::<runs::OutputQuery>(),
        seen(Route::get("/v1/tasks/{id}/steps", Need::Tasks, runs::steps))
            .named("listTaskSteps", "List a task's step and other points")
            .query::<runs::StepsQuery>()
            .answers::<Page<shape::Step>>(200, "Some points"),
        seen(Route::get("/v1/tasks/{id}/history", Need::Tasks, runs::history))
            .named("listTaskHistory", "Read a task's log")
            .query::<runs::HistoryQuery>()
            .answers::<Page<shape::Entry>>(200, "Some entries"),
        seen(Route::get("/v1/tasks/{id}/events", Need::Tasks, events::follow))
            .named("followTask", "Follow a task's events as they happen")
            .more("As those of a run.")
            .slow()
            .resumable()
            .query::<events::EventsQuery>()
            .streams::<shape::Sse>(200, "The events")
            .gives(204, "", "The task has ended, and all of its events were seen")
            .problems(&[Code::InvalidHeader]),
        seen(Route::get("/v1/tasks/{id}/signals", Need::Tasks, signals::inbox))
            .named("listTaskSignals", "List a task's signals, and what became of each")
            .query::<signals::NamedPage>()
            .answers::<Page<shape::Signal>>(200, "Some signals")
            .problems(&[InvalidName]),
        seen(Route::get("/v1/tasks/{id}/waiting", Need::Tasks, signals::waiting_of))
            .named("listTaskWaits", "List what a task waits for")
            .answers::<Page<shape::OpenWait>>(200, "The waits that are open, the earliest first"),
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
            .named("restartTask", "Restart a task that has ended or is paused"),
        asked(Route::post("/v1/tasks/{id}/migrate", Need::Tasks, control::migrate).body::<control::Migrate>())
            .audited("migrate")
            .named("migrateTask", "Bring a paused task to changed code"),
    ]
}

fn upkeep() -> Vec<Route> {
    use Code::{Stopped, TimedOut};
    vec![
        Route::post("/v1/prune", Need::Admin, upkeep::prune)
            .audited("prune")
            .named("prune", "Remove finished runs and tasks")
            .more("Never an unfinished one. What takes longer than a request may is done in part: ask again while `more`.")
            .slow()
            .body::<upkeep::Prune>()
            .answers::<upkeep::Pruned>(200, "What was removed")
            .problems(&[Stopped]),
        Route::post("/v1/sweep", Need::Admin, upkeep::sweep)
            .audited("sweep")
            .named("sweep", "Look for runs that nobody would look at, and repair that")
            .more("One pass. Workers do this by themselves.")
            .slow()
            .body::<upkeep::Sweep>()
            .answers::<shape::Swept>(200, "What was looked at, and repaired")
            .problems(&[TimedOut, Stopped]),
    ]
}

fn system() -> Vec<Route> {
    vec![
        Route::get("/v1/definitions/{type}", Need::Read, system::definitions)
            .named("listDefinitions", "What workers have known of a type, the newest last")
            .answers::<Page<shape::Definition>>(200, "The definitions")
            .problems(&[Code::NotFound]),
        Route::get("/v1/changes", Need::Store, changes::follow)
            .named("followStore", "Follow what is put into the store")
            .more("For remote workers, whose store this is (`--store https://…/s3`). Server-sent events: `put`, whose `data` is \
                the keys, one to a line; `missed`, after which one has to list; and at last `end`. Takes an access key of `/s3` \
                and its secret as HTTP Basic as well.")
            .slow()
            .query::<changes::ChangesQuery>()
            .streams::<shape::Sse>(200, "The puts from now on")
            .gives(204, "", "The store cannot tell: list it"),
        Route::get("/v1/health", Need::Public, system::health)
            .named("health", "Whether the server lives")
            .plain()
            .answers::<system::Health>(200, "It does"),
        Route::get("/v1/ready", Need::Public, system::ready)
            .named("ready", "Whether the store answers")
            .answers::<system::Health>(200, "It does")
            .problems(&[Code::Stopped]),
        Route::get("/metrics", Need::Admin, system::metrics)
            .named("metrics", "What the process counts, as Prometheus reads it")
            .plain()
            .gives(200, "text/plain", "The figures")
            .problems(&[Code::NotFound]),
        Route::get("/v1/openapi.json", Need::Public, system::description)
            .named("describe", "This description")
            .plain()
            .answers::<Value>(200, "OpenAPI 3.1"),
        Route::get("/v1/docs", Need::Public, system::docs).named("docs", "A page to try the API").plain().gives(
            200,
            "text/html",
            "The page",
        ),
        Route::get("/v1/docs/page.js", Need::Public, system::docs_script)
            .named("docsScript", "What the page does")
            .plain()
            .gives(200, "text/javascript", "The script"),
        Route::get("/v1/docs/page.css", Need::Public, system::docs_style)
            .named("docsStyle", "How the page looks")
            .plain()
            .gives(200, "text/css", "The style"),
    ]
}
