//! A disk that is full for a while.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use wigwag::{Ctx, Engine, ErrorKind, Failure, Settings};
use wigwag_store::{
    Batch, Changes, Embedded, Error, Now, Object, Page, Peers, Receipt, Result as Stored, Store, Traits, conformance,
};

/// A small file system.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts the file system; returns `None`, with a notice, where mounting is not possible.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder.path()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        conformance::skip("no file system can be mounted here, so that runs on a full disk are not tried");
        None
    }

    /// Fills the disk with one file, and returns the path of that file.
    fn fill(&self) -> PathBuf {
        let ballast = self.0.path().join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Writes until the log of the database cannot grow any more.
async fn write_until_full(store: &dyn Store) {
    for number in 0..10_000 {
        let written = store.write(Batch::new().put(format!("fill/{number}"), "x".repeat(4_000))).await;
        if written.is_err_and(|error| error.kind() == wigwag_store::ErrorKind::Full) {
            return;
        }
    }
    panic!("the disk is not full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_continues_at_once_when_a_full_disk_has_room_again_and_its_step_ran_once() {
    let Some(disk) = SmallDisk::new() else { return };
    let store: Arc<dyn Store> = Arc::new(Embedded::open(disk.0.path().join("store")).unwrap());
    let (begun, go, calls) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let parts = (Arc::clone(&begun), Arc::clone(&go), Arc::clone(&calls));
    let code = move |ctx: Ctx, (): ()| {
        let parts = parts.clone();
        async move {
            let work = || {
                let (begun, go, calls) = parts.clone();
                async move {
                    calls.fetch_add(1, Ordering::SeqCst);
                    begun.notify_one();
                    go.notified().await;
                    Ok::<_, Failure>("x".repeat(50_000))
                }
            };
            ctx.step("work", work).await
        }
    };
    let mut settings = Settings::default();
    // A worker that waited for the end of this lease would not finish within the test.
    settings.lease = Duration::from_secs(600);
    let engine =
        Engine::builder(Arc::clone(&store)).settings(settings).function("work", 1, code).start().await.unwrap();
    let run = engine.client().start("work", &()).id("r").await.unwrap();
    begun.notified().await;
    let ballast = disk.fill();
    write_until_full(&*store).await;
    go.notify_one();
    // The step has its result, which cannot be recorded.
    let error = engine.client().start("work", &()).id("other").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("full"), "a client gets the error at once: {error}");
    std::fs::remove_file(ballast).unwrap();
    let result = tokio::time::timeout(Duration::from_secs(20), run.result::<String>()).await;
    assert_eq!(result.expect("it continues before its lease ends").unwrap().len(), 50_000);
    assert_eq!(calls.load(Ordering::SeqCst), 1, "what the step gave was kept");
    engine.stop().await;
}

/// An embedded store that deletes after the entry, as a bucket does, and can reject such deletes as full.
#[derive(Debug)]
struct FullForDeletes {
    store: Embedded,
    is_full: AtomicBool,
    refused: AtomicU32,
}

#[async_trait]
impl Store for FullForDeletes {
    async fn get(&self, key: &str) -> Stored<Option<Object>> {
        self.store.get(key).await
    }
    async fn write(&self, batch: Batch) -> Stored<Receipt> {
        if self.is_full.load(Ordering::SeqCst) && batch.puts().next().is_none() {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::of_kind(wigwag_store::ErrorKind::Full));
        }
        self.store.write(batch).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Stored<Page> {
        self.store.list(prefix, after, limit).await
    }
    async fn now(&self) -> Stored<Now> {
        self.store.now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        self.store.changes(prefix)
    }
    fn traits(&self) -> Traits {
        Traits { atomic: false, ..self.store.traits() }
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.store.peers()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_was_given_up_because_the_disk_is_full_is_followed_before_its_lease_ends() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(folder.path()).unwrap();
    let store = FullForDeletes { store: embedded, is_full: AtomicBool::new(false), refused: AtomicU32::new(0) };
    let store = Arc::new(store);
    let begun = Arc::new(Notify::new());
    let (began, go) = (Arc::clone(&begun), Arc::new(AtomicBool::new(false)));
    let may_end = Arc::clone(&go);
    let code = move |ctx: Ctx, (): ()| {
        let (begun, go) = (Arc::clone(&began), Arc::clone(&may_end));
        async move {
            let work = || async {
                begun.notify_one();
                match go.load(Ordering::SeqCst) {
                    true => Ok::<_, Failure>(()),
                    false => std::future::pending().await,
                }
            };
            ctx.step("work", work).await
        }
    };
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(600);
    let shared: Arc<dyn Store> = store.clone();
    let engine = Engine::builder(shared).settings(settings).function("work", 1, code).start().await.unwrap();
    let run = engine.client().start("work", &()).id("r").await.unwrap();
    begun.notified().await;
    // The pause is recorded; then the delete of its control object fails, and the turn ends.
    store.is_full.store(true, Ordering::SeqCst);
    run.pause().await.unwrap();
    while store.refused.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    go.store(true, Ordering::SeqCst);
    store.is_full.store(false, Ordering::SeqCst);
    run.resume().await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(20), run.result::<()>()).await;
    result.expect("another turn follows before the lease ends").unwrap();
    engine.stop().await;
}
