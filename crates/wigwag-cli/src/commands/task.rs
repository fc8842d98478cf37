//! `wigwag task`: submits, shows and cancels tasks.

use super::{ask, find_task, start, status, target, target_of_new};
use crate::args::{StoreArgs, Submit, Task};
use crate::error::Failed;
use crate::input;
use crate::target::{Ask, NewTask};

pub(super) async fn run(args: &StoreArgs, wanted: Task, json: bool) -> Result<(), Failed> {
    match wanted {
        Task::Submit(wanted) => submit(args, wanted, json).await,
        Task::Status { id } => {
            let target = target(args).await?;
            let run = find_task(&*target, &id).await?;
            status::show(args, &*target, run, json).await
        }
        Task::Cancel { id, reason } => {
            let target = target(args).await?;
            let run = find_task(&*target, &id).await?.run;
            ask(&*target, &run, &Ask::Cancel { reason }, json).await
        }
    }
}

async fn submit(args: &StoreArgs, wanted: Submit, json: bool) -> Result<(), Failed> {
    let input = input::json(&wanted.input)?;
    let target = target_of_new(args).await?;
    let new = NewTask {
        of: wanted.of,
        input,
        key: wanted.key,
        queue: wanted.queue,
        retries: wanted.retries,
        timeout: wanted.timeout,
        at: wanted.when.at,
        delay: wanted.when.delay,
        expires: wanted.expires,
    };
    let submitted = target.submit(new).await;
    let run = submitted
        .map_err(|failed| start::refused(failed, "TYPE is the name of a task, `--queue` the name of a queue"))?;
    match wanted.wait {
        true => start::wait(args, &*target, &run, None).await,
        false => start::show_id(&run, json),
    }
}
