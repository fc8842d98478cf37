//! Minimum cost of durable writes on this disk: bytes appended to a file, and one fdatasync.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc;

use tokio::sync::oneshot;

/// A log that appends all waiting batches and syncs once: only group commit.
#[derive(Clone, Debug)]
pub(crate) struct RawLog {
    jobs: mpsc::Sender<(Vec<u8>, oneshot::Sender<()>)>,
}

impl RawLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = File::create(path)?;
        let (jobs, waiting) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            let (mut bytes, mut answers) = (Vec::new(), Vec::new());
            while let Ok(first) = waiting.recv() {
                for (batch, answer) in std::iter::once(first).chain(waiting.try_iter()) {
                    bytes.extend(batch);
                    answers.push(answer);
                }
                file.write_all(&bytes).expect("the benchmark's disk takes writes");
                file.sync_data().expect("the benchmark's disk takes a sync");
                bytes.clear();
                answers.drain(..).for_each(|answer| _ = answer.send(()));
            }
        });
        Ok(Self { jobs })
    }

    pub(crate) async fn write(&self, batch: Vec<u8>) {
        let (answer, answered) = oneshot::channel();
        self.jobs.send((batch, answer)).expect("the log's thread lives as long as its handle");
        answered.await.expect("the log's thread answers every batch");
    }
}
