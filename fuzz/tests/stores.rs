//! Stores with foreign content: a database with wrong bytes, a server that answers nonsense.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wigwag_fuzz::{Choices, body, fuzz, without_panics};
use wigwag_store::{Batch, Bucket, BucketSettings, Embedded, EmbeddedSettings, Store};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns all files of a store after a simulated crash: the last writes are in the log next to the database.
fn files_of_a_store() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(folder.path().join("store")).unwrap();
    runtime().block_on(async {
        for number in 0..40 {
            let batch = Batch::new().put(format!("a/{number:03}"), vec![b'x'; number * 40]);
            store.write(batch.create(format!("b/{number:03}"), "{}")).await.unwrap();
        }
    });
    let mut files = Vec::new();
    collect(&folder.path().join("store"), Path::new(""), &mut files);
    files.sort();
    files
}

fn collect(root: &Path, below: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(root.join(below)).unwrap().flatten() {
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else {
            files.push((path, fs::read(entry.path()).unwrap()));
        }
    }
}

/// Calls every operation of a store, none of which has to succeed.
async fn ask(store: &dyn Store) {
    let _ = store.list("", "", 1_000).await;
    for key in ["a/000", "a/039", "b/007"] {
        let _ = store.get(key).await;
    }
    let created = store.write(Batch::new().put("c", "1").create("d", "2").delete("a/001")).await;
    if let (Ok(receipt), Ok(Some(object))) = (created, store.get("d").await) {
        assert_eq!(receipt.versions.last(), Some(&object.version));
        let _ = store.write(Batch::new().update("d", "3", object.version)).await;
    }
    let (one, other) = (store.now().await, store.now().await);
    if let (Ok(one), Ok(other)) = (one, other) {
        assert!(one.at <= other.at, "time never goes back");
    }
}

#[test]
fn a_directory_with_wrong_bytes_is_rejected_or_served() {
    let files = files_of_a_store();
    assert!(files.iter().any(|(path, body)| path.ends_with("wigwag.db") && body.len() > 4_096), "{files:?}");
    fuzz!(150, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let folder = tempfile::tempdir().unwrap();
        // Prefer the database and its log; the other files are small and few.
        let main: Vec<usize> =
            (0..files.len()).filter(|place| files[*place].0.to_string_lossy().contains("wigwag.db")).collect();
        let place = if choices.once_in(6) { choices.below(files.len()) } else { *choices.pick(&main) };
        for (number, (path, bytes)) in files.iter().enumerate() {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            match number == place {
                false => fs::write(file, bytes).unwrap(),
                true if choices.once_in(12) => {}
                true => fs::write(file, body(&mut choices, std::slice::from_ref(bytes))).unwrap(),
            }
        }
        let before = fs::read(folder.path().join("wigwag.db")).ok();
        without_panics(|| match Embedded::open_with(folder.path(), &EmbeddedSettings::existing()) {
            Ok(store) => runtime().block_on(async {
                let all = async { (ask(&store).await, store.check_integrity().await.ok()) };
                assert!(tokio::time::timeout(Duration::from_secs(20), all).await.is_ok(), "it hangs");
            }),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!(fs::read(folder.path().join("wigwag.db")).ok() == before, "refused, and changed: {error}");
            }
        });
    });
}

/// Answers of real servers, used as seeds.
const ANSWERS: [&str; 8] = [
    "HTTP/1.1 200 OK\r\nDate: Wed, 28 Jan 2026 12:00:05 GMT\r\nETag: \"x\"\r\nLast-Modified: Wed, 28 Jan 2026 12:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nDate: Wed, 28 Jan 2026 12:00:05 GMT\r\nContent-Type: application/xml\r\nContent-Length: 295\r\n\r\n<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents><Key>a/1</Key><LastModified>2026-01-28T12:00:00.000Z</LastModified><ETag>\"x\"</ETag><Size>2</Size></Contents></ListBucketResult>",
    "HTTP/1.1 404 Not Found\r\nDate: Sat, 01 Jan 0000 00:00:00 GMT\r\nContent-Length: 38\r\n\r\n<Error><Code>NoSuchBucket</Code></Error>",
    "HTTP/1.1 412 X\r\nDate: Fri, 31 Dec 9999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 503 X\r\nRetry-After: 99999999999999999999\r\nContent-Length: 38\r\n\r\n<Error><Code>SlowDown</Code>  </Error>",
    "HTTP/1.1 503 X\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 409 X\r\nDate: Sunday, 06-Nov-94 08:49:37 GMT\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nDate: Sun Nov  6 08:49:37 1994\r\n\r\n",
];

/// Reads the head of a request, sends the answer, and closes the connection.
async fn answer(mut stream: TcpStream, answer: Vec<u8>) -> Option<()> {
    let mut seen = Vec::new();
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut some = [0; 4_096];
        let count = stream.read(&mut some).await.ok().filter(|count| *count > 0)?;
        seen.extend_from_slice(&some[..count]);
    }
    stream.write_all(&answer).await.ok()?;
    stream.shutdown().await.ok()
}

#[test]
fn any_answer_of_a_server_is_an_error_or_an_answer() {
    let seeds: Vec<Vec<u8>> = ANSWERS.iter().map(|text| text.as_bytes().to_vec()).collect();
    let runtime = runtime();
    let answers = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let queue = Arc::clone(&answers);
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut queue = queue.lock().unwrap();
            // Serve the answers in rotation.
            queue.rotate_left(1);
            let next = queue.last().cloned().unwrap_or_default();
            drop(queue);
            tokio::spawn(answer(stream, next));
        }
    });
    let mut settings = BucketSettings::default();
    settings.endpoint = Some(endpoint);
    settings.keys = Some(("id".into(), "secret".into()));
    settings.request_max = Duration::from_millis(300);
    fuzz!(200, |input: &[u8]| {
        let mut choices = Choices::new(input);
        *answers.lock().unwrap() = (0..=choices.below(3)).map(|_| body(&mut choices, &seeds)).collect();
        without_panics(|| {
            runtime.block_on(async {
                let bucket = Bucket::open("s3://b", &settings).unwrap();
                let done = tokio::time::timeout(Duration::from_secs(20), ask(&bucket)).await;
                assert!(done.is_ok(), "it hangs");
            });
        });
    });
}
