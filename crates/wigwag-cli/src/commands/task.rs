//! `wigwag task`: single steps that any worker of a queue runs.

use wigwag::Retry;

use super::{cancel, client, client_of_new, find_task, start, status};
use crate::args::{StoreArgs, Submit, Task};
use crate::error::Failed;
use crate::input;

pub(super) async fn run(args: &StoreArgs, wanted: Task, json: bool) -> Result<(), Failed> {
    match wanted {
        Task::Submit(wanted) => submit(args, wanted, json).await,
        Task::Status { id } => {
            let (handle, run) = find_task(&client(args).await?, &id).await?;
            status::show(args, &handle, run, json).await
        }
        Task::Cancel { id, reason } => {
            let (handle, _) = find_task(&client(args).await?, &id).await?;
            cancel::cancel(&handle, reason, json).await
        }
    }
}

async fn submit(args: &StoreArgs, wanted: Submit, json: bool) -> Result<(), Failed> {
    let payload = input::json(&wanted.input)?;
    let client = client_of_new(args).await?;
    let mut call = client.submit(&wanted.of, &payload).queue(wanted.queue);
    if let Some(key) = wanted.key {
        call = call.key(key);
    }
    if let Some(retries) = wanted.retries {
        call = call.retry(Retry::times(retries));
    }
    if let Some(timeout) = wanted.timeout {
        call = call.timeout(timeout);
    }
    if let Some(at) = wanted.when.at {
        call = call.at(at);
    }
    if let Some(delay) = wanted.when.delay {
        call = call.delay(delay);
    }
    if let Some(expires) = wanted.expires {
        call = call.expires_in(expires);
    }
    let handle =
        call.await.map_err(|error| start::refused(error, "TYPE is the name of a task, `--queue` that of a queue"))?;
    match wanted.wait {
        true => start::wait(args, &handle, None).await,
        false => start::show_id(&handle, json),
    }
}
