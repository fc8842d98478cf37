//! What the embedded store does beyond the suite: its directory, its disk, its neighbours.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wigwag_store::conformance;
use wigwag_store::{Batch, Change, Clock, Embedded, EmbeddedSettings, ErrorKind, STAMP, Stamp, Store, System};

async fn put(store: &Embedded, key: &str, body: &str) {
    store.write(Batch::new().put(key, body.to_owned())).await.unwrap();
}

/// A clock that is wrong by this many seconds.
#[derive(Debug)]
struct Off(i64);

#[async_trait::async_trait]
impl Clock for Off {
    fn wall(&self) -> Stamp {
        Stamp::from_micros(System.wall().micros().saturating_add_signed(self.0 * 1_000_000))
    }
    fn boot(&self) -> Duration {
        System.boot()
    }
    async fn sleep(&self, span: Duration) {
        System.sleep(span).await;
    }
}

fn open_with_clock(path: &Path, seconds: i64) -> Embedded {
    let mut settings = EmbeddedSettings::default();
    settings.clock = Arc::new(Off(seconds));
    Embedded::open_with(path, &settings).unwrap()
}

#[tokio::test]
async fn a_clock_stepped_back_over_a_restart_does_not_repeat_or_reverse_a_stamp() {
    let folder = tempfile::tempdir().unwrap();
    let stamp =
        async |store: &Embedded| store.write(Batch::new().put(format!("s/{STAMP}"), "x")).await.unwrap().stamp.unwrap();
    let ahead = stamp(&open_with_clock(folder.path(), 3_600)).await;
    let store = open_with_clock(folder.path(), 0);
    assert!(store.now().await.unwrap().at > ahead);
    assert!(stamp(&store).await > ahead);
}

/// A clock by which everything takes 10 ms.
#[derive(Debug, Default)]
struct Slow(AtomicU64);

#[async_trait::async_trait]
impl Clock for Slow {
    fn wall(&self) -> Stamp {
        System.wall()
    }
    fn boot(&self) -> Duration {
        Duration::from_millis(10 * self.0.fetch_add(1, Ordering::Relaxed))
    }
    async fn sleep(&self, span: Duration) {
        System.sleep(span).await;
    }
}

#[tokio::test]
async fn reads_are_the_same_inline_and_by_a_thread() {
    let mut slow = EmbeddedSettings::default();
    slow.clock = Arc::new(Slow::default());
    for settings in [EmbeddedSettings::default(), slow] {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open_with(folder.path(), &settings).unwrap();
        for number in 0..40 {
            let key = format!("k/{number:02}");
            put(&store, &key, &key).await;
            assert_eq!(store.get(&key).await.unwrap().unwrap().body, key.as_bytes(), "read back at once");
            // 32 entries are listed on the spot; a page of more is begun there, and is a thread's.
            let page = store.list("k/", "", 1_000).await.unwrap();
            assert_eq!((page.entries.len(), page.more), (number + 1, false));
            let page = store.list("k/", "", number).await.unwrap();
            assert_eq!((page.entries.len(), page.more), (number, number > 0));
        }
        assert_eq!(store.get("k/absent").await.unwrap(), None);
    }
}

#[tokio::test]
async fn two_processes_that_disagree_on_the_calendar_agree_on_the_order() {
    let folder = tempfile::tempdir().unwrap();
    let (fast, slow) = (open_with_clock(folder.path(), 60), open_with_clock(folder.path(), 0));
    let mut last = Stamp::default();
    for turn in 0..20 {
        let store = if turn % 2 == 0 { &fast } else { &slow };
        let stamp = store.write(Batch::new().put(format!("s/{STAMP}"), "x")).await.unwrap().stamp.unwrap();
        assert!(stamp > last);
        last = stamp;
    }
}

#[tokio::test]
async fn a_commit_of_one_process_is_seen_and_noticed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Embedded::open(folder.path()).unwrap(), Embedded::open(folder.path()).unwrap());
    let mut changes = other.changes("due/");
    for number in 0..10 {
        let key = format!("due/{number}");
        put(&one, &key, "x").await;
        assert!(other.get(&key).await.unwrap().is_some());
        let noticed = tokio::time::timeout(Duration::from_secs(10), changes.next()).await;
        assert_eq!(noticed, Ok(Change::Put(key)));
    }
    let refused = other.write(Batch::new().create("due/0", "y")).await.unwrap_err();
    assert!(refused.is_exists(), "conditions hold between processes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_process_does_not_starve_another() {
    let folder = tempfile::tempdir().unwrap();
    let (busy, other) = (Embedded::open(folder.path()).unwrap(), Embedded::open(folder.path()).unwrap());
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let (busy, stop, done) = (busy.clone(), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let number = done.fetch_add(1, Ordering::Relaxed);
                    put(&busy, &format!("busy/{writer}/{number}"), "x").await;
                }
            })
        })
        .collect();
    while done.load(Ordering::Relaxed) < 1_000 {
        tokio::task::yield_now().await;
    }
    let before = done.load(Ordering::Relaxed);
    for number in 0..20 {
        put(&other, &format!("other/{number}"), "x").await;
    }
    let meanwhile = done.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(meanwhile < 20 * 64 * 20, "20 commits waited for {meanwhile} commits of another process");
}

#[tokio::test]
async fn a_stuck_writer_of_another_process_makes_the_store_unavailable_for_a_limited_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = EmbeddedSettings::default();
    settings.turn_wait = Duration::from_millis(50);
    let store = Embedded::open_with(folder.path(), &settings).unwrap();
    let lock = fs::File::open(folder.path().join("locks/writer.lock")).unwrap();
    lock.lock().unwrap();
    let error = store.write(Batch::new().put("key", "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    lock.unlock().unwrap();
    put(&store, "key", "x").await;
}

#[test]
fn a_process_is_alive_until_it_is_killed_and_not_a_moment_longer() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    let peers = store.peers().unwrap();
    assert!(peers.is_alive(peers.me()));

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_says_its_name_and_waits", "--nocapture"])
        .env("WIGWAG_FOLDER", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let name = said.filter_map(|line| line.strip_prefix("I am ").map(str::to_owned)).next().unwrap();
    assert!(peers.is_alive(&name));
    assert_ne!(name, peers.me());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!peers.is_alive(&name));
    for name in ["", "..", "nobody", "../locks/writer.lock", "a/b"] {
        assert!(!peers.is_alive(name), "{name}");
    }
}

#[test]
#[ignore = "runs as a child process of another test"]
fn child_says_its_name_and_waits() {
    let store = Embedded::open(std::env::var("WIGWAG_FOLDER").expect("the parent says where")).unwrap();
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "I am {}", store.peers().unwrap().me()).unwrap();
    stdout.flush().unwrap();
    // Until the parent kills us, or goes away.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Every file below a folder with its bytes, locks and marks of processes left out.
fn bytes(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn refused(folder: &Path, kind: ErrorKind, word: &str) {
    let before = bytes(folder);
    let error = Embedded::open(folder).unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(word), "{error}");
    assert_eq!(bytes(folder), before, "it was left untouched");
}

#[test]
fn a_foreign_directory_is_rejected_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.doc"), "dear").unwrap();
    refused(folder.path(), ErrorKind::Invalid, "thesis.doc");
    assert!(!folder.path().join("locks").exists());
}

#[test]
fn a_foreign_database_is_rejected_and_left_unchanged() {
    let database = |application: u32, format: u32| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE things (name TEXT)").unwrap();
        other.pragma_update(None, "application_id", application).unwrap();
        other.pragma_update(None, "user_version", format).unwrap();
        other.close().unwrap();
        fs::read(path).unwrap()
    };
    let ours = 0x5747_5747;
    for (content, kind, word) in [
        (b"garbage".to_vec(), ErrorKind::Damaged, "cut short"),
        (vec![7; 9_000], ErrorKind::Damaged, "damaged"),
        (database(0, 1), ErrorKind::Invalid, "another program"),
        (database(ours, 99), ErrorKind::Damaged, "format 99"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("wigwag.db"), content).unwrap();
        refused(folder.path(), kind, word);
    }
}

#[test]
fn a_file_in_place_of_the_directory_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(Embedded::open(&file).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

#[test]
fn a_store_that_must_exist_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let error = Embedded::open_with(&path, &EmbeddedSettings::existing()).unwrap_err();
    assert!(error.to_string().contains("store not found"), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_creation_cut_short_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("wigwag.db.new"), "half a data").unwrap();
    fs::write(folder.path().join("wigwag.db.new-wal"), "base").unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    put(&store, "key", "x").await;
    assert!(!folder.path().join("wigwag.db.new").exists());
}

#[tokio::test]
async fn damage_inside_the_database_is_an_error_and_not_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = Embedded::open(folder.path()).unwrap();
        for number in 0..200 {
            put(&store, &format!("key/{number:04}"), &"x".repeat(2_000)).await;
        }
    }
    let path = folder.path().join("wigwag.db");
    fold_and_close(folder.path()).await;
    let mut content = fs::read(&path).unwrap();
    for (place, byte) in content.iter_mut().enumerate().skip(8_192) {
        *byte = (place % 251) as u8;
    }
    fs::write(&path, content).unwrap();
    match Embedded::open(folder.path()) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error:?}"),
        Ok(store) => {
            let error = store.get("key/0007").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error:?}");
            assert_eq!(store.check_integrity().await.unwrap_err().kind(), ErrorKind::Damaged);
        }
    }
}

/// Copies the whole log into the database file, as a clean shutdown does once its threads have ended.
async fn fold_and_close(folder: &Path) {
    for _ in 0..500 {
        if !folder.join("wigwag.db-wal").exists() {
            return;
        }
        drop(Embedded::open(folder).unwrap());
        System.sleep(Duration::from_millis(10)).await;
    }
    panic!("the store's threads have not ended");
}

/// A small separate file system; `None`, with a message, where that is not permitted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(folder.path()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        conformance::skip("no file system can be mounted here, so that a full disk is not tried");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_to_the_caller_and_the_store_works_again_once_there_is_room() {
    let Some(disk) = SmallDisk::new() else { return };
    let ballast = disk.0.path().join("ballast");
    fs::write(&ballast, vec![0; 4 * 1024 * 1024]).unwrap();
    let path = disk.0.path().join("store");
    let store = Embedded::open(&path).unwrap();
    let body = "x".repeat(100_000);
    let mut kept = Vec::new();
    let error = loop {
        let key = format!("key/{:04}", kept.len());
        match store.write(Batch::new().put(&key, body.clone()).put(format!("{key}-twin"), "y")).await {
            Ok(_) => kept.push(key),
            Err(error) => break error,
        }
        assert!(kept.len() < 100, "a disk of 8 MB takes no 10 MB");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error:?}");
    assert!(error.advice().is_some_and(|hint| hint.contains("free disk space")));
    assert!(!kept.is_empty());
    let refused = format!("key/{:04}", kept.len());
    assert!(store.get(&refused).await.unwrap().is_none(), "nothing of it landed");

    fs::remove_file(&ballast).unwrap();
    store.write(Batch::new().put(&refused, body)).await.unwrap();
    kept.push(refused);
    drop(store);
    let store = Embedded::open(&path).unwrap();
    for key in kept {
        assert_eq!(store.get(&key).await.unwrap().unwrap().body.len(), 100_000);
    }
    store.check_integrity().await.unwrap();
}

/// A second name of a directory under which nothing can be written.
struct ReadOnlyMount(tempfile::TempDir);

impl ReadOnlyMount {
    /// `None`, loudly, where that is not allowed.
    fn of(folder: &Path) -> Option<Self> {
        let mount = tempfile::tempdir().unwrap();
        let run = |args: &[&str], paths: &[&Path]| {
            Command::new("mount").args(args).args(paths).status().is_ok_and(|status| status.success())
        };
        if run(&["--bind"], &[folder, mount.path()]) && run(&["-o", "remount,bind,ro"], &[mount.path()]) {
            return Some(Self(mount));
        }
        conformance::skip("no file system can be mounted here, so that a read-only one is not tried");
        None
    }

    fn open(&self) -> wigwag_store::Result<Embedded> {
        let mut settings = EmbeddedSettings::existing();
        settings.read_only = true;
        Embedded::open_with(self.0.path(), &settings)
    }
}

impl Drop for ReadOnlyMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

async fn assert_reads_and_rejects_writes(store: &Embedded, keys: &[&str]) {
    assert!(store.is_read_only());
    let listed = store.list("key/", "", 10).await.unwrap().entries;
    assert_eq!(listed.iter().map(|listed| listed.key.as_str()).collect::<Vec<_>>(), keys);
    assert_eq!(store.get(keys[0]).await.unwrap().unwrap().body.as_ref(), b"1");
    assert!(store.now().await.unwrap().at >= listed[0].modified);
    store.check_integrity().await.unwrap();
    let error = store.write(Batch::new().put("key/new", "x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("open for reading only"), "{error}");
}

#[tokio::test]
async fn a_closed_store_on_a_read_only_file_system_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    put(&Embedded::open(folder.path()).unwrap(), "key/1", "1").await;
    fold_and_close(folder.path()).await;
    let Some(mount) = ReadOnlyMount::of(folder.path()) else { return };
    let before = bytes(folder.path());
    let store = mount.open().unwrap();
    assert_reads_and_rejects_writes(&store, &["key/1"]).await;
    assert_eq!(bytes(folder.path()), before, "nothing was changed");
    let error = Embedded::open(mount.0.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "a process that must write gets an error: {error}");
    // Another process opens it where it can be written: lock-free reads can no longer be trusted.
    put(&Embedded::open(folder.path()).unwrap(), "key/2", "2").await;
    let error = store.get("key/1").await.unwrap_err();
    assert!(error.to_string().contains("changed by another process"), "{error}");
}

#[tokio::test]
async fn a_store_that_is_written_elsewhere_can_be_read_on_a_read_only_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Embedded::open(folder.path()).unwrap();
    put(&writer, "key/1", "1").await;
    let Some(mount) = ReadOnlyMount::of(folder.path()) else { return };
    let store = mount.open().unwrap();
    assert_reads_and_rejects_writes(&store, &["key/1"]).await;
    put(&writer, "key/2", "2").await;
    assert_reads_and_rejects_writes(&store, &["key/1", "key/2"]).await;
}

#[tokio::test]
async fn a_store_whose_last_process_died_can_be_read_on_a_read_only_file_system() {
    let [folder, killed, cut] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let writer = Embedded::open(folder.path()).unwrap();
    put(&writer, "key/1", "1").await;
    // What a process leaves behind that is killed now; and the same without the index of its log.
    for file in ["wigwag.db", "wigwag.db-wal", "wigwag.db-shm"] {
        fs::copy(folder.path().join(file), killed.path().join(file)).unwrap();
    }
    for file in ["wigwag.db", "wigwag.db-wal"] {
        fs::copy(folder.path().join(file), cut.path().join(file)).unwrap();
    }
    let Some(mount) = ReadOnlyMount::of(killed.path()) else { return };
    assert_reads_and_rejects_writes(&mount.open().unwrap(), &["key/1"]).await;
    let Some(mount) = ReadOnlyMount::of(cut.path()) else { return };
    assert_eq!(mount.open().unwrap_err().kind(), ErrorKind::Denied, "an error, not an older state");
}

/// SQLite itself continues to write to files without a name, and reports success.
#[tokio::test]
async fn writes_to_removed_files_are_not_acknowledged() {
    for taken in ["wigwag.db", "wigwag.db-wal", ""] {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("store"), folder.path().join("aside"));
        let store = Embedded::open(&path).unwrap();
        put(&store, "before", "1").await;
        fs::rename(path.join(taken), &aside).unwrap();
        let error = store.write(Batch::new().put("meanwhile", "2")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains(&format!("{}", path.display())), "{error}");
        assert!(error.to_string().contains("removed or moved away"), "{error}");
        assert!(error.advice().is_some_and(|advice| advice.contains("put it back")), "{error:?}");

        fs::rename(&aside, path.join(taken)).unwrap();
        put(&store, "after", "3").await;
        drop(store);
        let store = Embedded::open(&path).unwrap();
        let there = store.list("", "", 10).await.unwrap().entries;
        let there: Vec<&str> = there.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(there, ["after", "before", "wigwag.json"], "{taken}");
    }
}

#[tokio::test]
async fn a_database_that_was_replaced_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    put(&store, "before", "1").await;
    let (database, copy) = (folder.path().join("wigwag.db"), folder.path().join("copy"));
    fs::copy(&database, &copy).unwrap();
    fs::rename(&copy, &database).unwrap();
    let error = store.write(Batch::new().put("meanwhile", "2")).await.unwrap_err();
    assert!(error.to_string().contains("replaced by another file"), "{error}");
    assert!(error.advice().is_some_and(|advice| advice.contains("restart every process")), "{error:?}");
}

#[test]
fn a_write_is_synced_before_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    if !Command::new("strace").arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        conformance::skip("strace cannot be used here, so that the sync before the answer is not seen");
        return;
    }
    let traced = Command::new("strace")
        .args(["-f", "-y", "-s", "32", "-e", "trace=write,pwrite64,fdatasync,fsync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_writes_and_tells", "--nocapture"])
        .env("WIGWAG_FOLDER", folder.path().join("store"))
        .stdout(Stdio::null())
        .status();
    assert!(traced.unwrap().success(), "the child that writes has failed");
    let trace = fs::read_to_string(&trace).unwrap();
    let (mut answers, mut unsynced, mut synced) = (0, false, false);
    for line in trace.lines() {
        let of_log = line.contains("wigwag.db-wal>");
        if line.contains("pwrite64(") && of_log {
            (unsynced, synced) = (true, false);
        } else if (line.contains("fdatasync(") && of_log && line.ends_with("= 0"))
            || (line.contains("fdatasync resumed") && line.ends_with("= 0"))
        {
            synced = unsynced;
        } else if line.contains("\"told ") {
            assert!(synced, "an answer was given before its write was synced:\n{line}");
            (unsynced, synced) = (false, false);
            answers += 1;
        }
    }
    assert_eq!(answers, 20, "every answer was seen");
}

#[test]
#[ignore = "runs as a child process of another test"]
fn child_writes_and_tells() {
    let store = Embedded::open(std::env::var("WIGWAG_FOLDER").expect("the parent says where")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for number in 0..20 {
        runtime.block_on(put(&store, &format!("key/{number}"), "x"));
        std::io::stdout().lock().write_all(format!("told {number}\n").as_bytes()).unwrap();
    }
}

/// Opens the database as another program would, reads, and closes it for good.
#[test]
#[ignore = "runs as a child process of another test"]
fn child_reads_with_plain_sqlite_and_closes() {
    let path = std::env::var("WIGWAG_FOLDER").expect("the parent says where");
    let connection = rusqlite::Connection::open(Path::new(&path).join("wigwag.db")).unwrap();
    let count: i64 = connection.query_row("SELECT count(*) FROM objects", [], |row| row.get(0)).unwrap();
    connection.close().unwrap();
    std::io::stdout().lock().write_all(format!("\ncount {count}\n").as_bytes()).unwrap();
}

fn count_in_another_process(folder: &Path) -> i64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_reads_with_plain_sqlite_and_closes", "--nocapture"])
        .env("WIGWAG_FOLDER", folder)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().find_map(|line| line.strip_prefix("count ")).unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

/// How many locks of any process the system knows on a file.
fn locks_on(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt as _;
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    fs::read_to_string("/proc/locks").unwrap().lines().filter(|line| line.contains(&inode)).count()
}

#[tokio::test]
async fn opening_a_store_twice_in_a_process_keeps_others_from_taking_its_log_away() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("wigwag.db");
    let store = Embedded::open(folder.path()).unwrap();
    put(&store, "one", "x").await;
    assert!(locks_on(&database) > 0, "the database is locked for as long as it is open");
    drop(Embedded::open(folder.path()).unwrap());
    let _again = Embedded::open(folder.path()).unwrap();
    assert!(locks_on(&database) > 0, "and still is, however often it is opened");
    assert_eq!(count_in_another_process(folder.path()), 2, "`wigwag.json` and `one`");
    put(&store, "two", "x").await;
    assert_eq!(count_in_another_process(folder.path()), 3, "later acknowledged writes are visible to all processes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_starts_over_also_when_two_processes_keep_writing() {
    let folder = tempfile::tempdir().unwrap();
    let stores = [Embedded::open(folder.path()).unwrap(), Embedded::open(folder.path()).unwrap()];
    let writers: Vec<_> = (0..8_usize)
        .map(|writer| {
            let store = stores[writer % 2].clone();
            tokio::spawn(async move {
                for number in 0..500 {
                    put(&store, &format!("w{writer}/{:03}", number % 50), &"x".repeat(100_000)).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let log = fs::metadata(folder.path().join("wigwag.db-wal")).unwrap().len();
    assert!(log < 330_000_000, "400 MB were written and the log holds {log} bytes");
}

#[tokio::test]
async fn the_disk_gets_back_what_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path()).unwrap();
    let pages = || {
        let connection = rusqlite::Connection::open(folder.path().join("wigwag.db")).unwrap();
        connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0)).unwrap()
    };
    for number in 0..400 {
        put(&store, &format!("old/{number:03}"), &"x".repeat(100_000)).await;
    }
    let full = pages();
    let gone = (0..400).fold(Batch::new(), |batch, number| batch.delete(format!("old/{number:03}")));
    store.write(gone).await.unwrap();
    // Each commit gives some pages back, once it was seen that many are free.
    for number in 0..200 {
        put(&store, &format!("new/{number:03}"), "x").await;
    }
    let left = pages();
    assert!(full > 4_000 && left < full / 3, "{full} pages, then {left}");
    assert_eq!(store.list("new/", "", 1_000).await.unwrap().entries.len(), 200);
    store.check_integrity().await.unwrap();
}

/// Writes 12 MB and deletes them, and keeps one object.
async fn leave_free_pages(store: &Embedded) {
    put(store, "kept", "still there").await;
    for number in 0..60 {
        put(store, &format!("big/{number}"), &"x".repeat(200_000)).await;
    }
    for number in 0..60 {
        store.write(Batch::new().delete(format!("big/{number}"))).await.unwrap();
    }
}

#[tokio::test]
async fn vacuum_returns_free_pages_to_the_disk_beside_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (Embedded::open(folder.path()).unwrap(), Embedded::open(folder.path()).unwrap());
    leave_free_pages(&store).await;
    let vacuumed = store.vacuum().await.unwrap();
    assert!(vacuumed.bytes_before > 10_000_000 && vacuumed.bytes_after < 1_000_000, "{vacuumed:?}");
    assert!(!vacuumed.is_rebuilt);
    assert_eq!(fs::metadata(folder.path().join("wigwag.db")).unwrap().len(), vacuumed.bytes_after);
    put(&other, "written after", "x").await;
    assert_eq!(other.get("kept").await.unwrap().unwrap().body, "still there");
}

/// A directory as early versions made it, which cannot return free pages.
fn early_directory(folder: &Path) {
    drop(Embedded::open(folder).unwrap());
    let database = rusqlite::Connection::open(folder.join("wigwag.db")).unwrap();
    database.busy_timeout(Duration::from_secs(5)).unwrap();
    database.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM;").unwrap();
    assert_eq!(database.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn vacuum_rebuilds_an_early_directory_once_and_only_while_no_other_process_has_it_open() {
    let folder = tempfile::tempdir().unwrap();
    early_directory(folder.path());
    let (store, other) = (Embedded::open(folder.path()).unwrap(), Embedded::open(folder.path()).unwrap());
    leave_free_pages(&store).await;
    let version = store.get("kept").await.unwrap().unwrap().version;
    let refused = store.vacuum().await.unwrap_err();
    assert!(refused.to_string().contains("another process has it open"), "{refused}");
    assert!(refused.advice().unwrap().contains("stop all other processes"), "{refused:?}");
    drop(other);
    // The thread of the other store ends a moment after it was dropped.
    let mut vacuumed = store.vacuum().await;
    while vacuumed.is_err() {
        System.sleep(Duration::from_millis(5)).await;
        vacuumed = store.vacuum().await;
    }
    let vacuumed = vacuumed.unwrap();
    assert!(vacuumed.is_rebuilt && vacuumed.bytes_after < 1_000_000, "{vacuumed:?}");
    let kept = store.get("kept").await.unwrap().unwrap();
    assert_eq!((&kept.body[..], kept.version), (&b"still there"[..], version), "nothing else has changed");
    put(&store, "written after", "x").await;
    assert!(!store.vacuum().await.unwrap().is_rebuilt, "once is enough");
}
