//! Clients: they start runs, send signals and cancel, and log every request and answer.
//!
//! A client has a seat and several lanes, each of which sends its requests in sequence. When it is killed, another
//! client takes its seat and reads the log: unanswered requests are retried, a start under its id, a signal under its
//! idempotency key, and a signal without a key as a new one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Client, ErrorKind};
use wigwag_store::{Clock as _, System};

use super::cases::{Case, Deed, Kind, case};
use super::ledger::{Book, lines, wall, whole};

/// One log line of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// By the machine's wall clock, in microseconds.
    pub(crate) at: u64,
    pub(crate) process: u32,
    /// Id of the run.
    pub(crate) run: String,
    /// Index of the request in its case.
    pub(crate) deed: usize,
    /// Number of earlier attempts.
    pub(crate) attempt: usize,
    pub(crate) word: Word,
}

/// The event that a line records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// The request is about to be sent.
    Try,
    /// The request was acknowledged.
    Done,
    /// The signal was acknowledged, with this position in the inbox.
    Sent { id: String, suffix: String, repeated: bool },
    /// The request was rejected permanently.
    Refused { kind: String, what: String },
    /// The request failed and is retried.
    Failed { kind: String, what: String, advice: String },
}

impl Word {
    /// Whether the request needs no retry.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Done | Self::Sent { .. } | Self::Refused { .. })
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Done | Self::Sent { .. })
    }
}

/// Returns the sender of a signal, which identifies it among all others.
pub(crate) fn sender(run: &str, deed: usize, attempt: usize, keyed: bool) -> String {
    // With an idempotency key, all attempts are the same signal.
    if keyed { format!("{run}#{deed}") } else { format!("{run}#{deed}/{attempt}") }
}

/// Parameters of the clients.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) ledger: PathBuf,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) lanes: usize,
    /// Maximum pause between two cases of a lane.
    pub(crate) pause: Duration,
}

impl Manner {
    /// Returns the file whose existence stops clients from starting further cases.
    pub(crate) fn stop(&self) -> PathBuf {
        self.ledger.join("stop")
    }
}

/// Returns all lines of a seat, sorted by time.
pub(crate) fn notes(ledger: &Path, seat: &str) -> Vec<Note> {
    let mut notes: Vec<Note> =
        lines(&ledger.join("clients").join(seat)).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    notes.sort_by_key(|note| note.at);
    notes
}

/// Whether a process has a request without an answer.
pub(crate) fn is_at_work(ledger: &Path, seat: &str, process: u32) -> bool {
    let book = ledger.join("clients").join(seat).join(process.to_string());
    let said = std::fs::read_to_string(book).unwrap_or_default();
    let tries = whole(&said).filter(|line| line.ends_with(r#""word":"Try"}"#)).count();
    tries * 2 > whole(&said).count()
}

/// Returns all lines of all seats.
pub(crate) fn all_notes(ledger: &Path) -> Vec<Note> {
    let seats = std::fs::read_dir(ledger.join("clients")).into_iter().flatten();
    let seats = seats.map(|seat| seat.unwrap().file_name().into_string().unwrap());
    seats.flat_map(|seat| notes(ledger, &seat)).collect()
}

/// Returns the cases that were started.
pub(crate) fn cases(kinds: &[Kind], notes: &[Note]) -> Vec<Case> {
    let runs: BTreeMap<&str, ()> = notes.iter().map(|note| (note.run.as_str(), ())).collect();
    let of_run = |run: &str| {
        let [_, lane, number] = run.split('-').collect::<Vec<_>>()[..] else { panic!("not a case: {run}") };
        case(kinds, lane, number.parse().unwrap())
    };
    runs.into_keys().map(of_run).collect()
}

/// Runs the cases of a seat until it is stopped or killed.
pub(crate) async fn work(client: Client, manner: &Manner, seat: &str) {
    let mut past = BTreeMap::<(String, usize), Vec<Word>>::new();
    for note in notes(&manner.ledger, seat) {
        past.entry((note.run, note.deed)).or_default().push(note.word);
    }
    let book = Book::open(&manner.ledger.join("clients").join(seat));
    let desk = Arc::new(Desk { client, book, past, manner: manner.clone() });
    let lanes = (0..manner.lanes).map(|lane| tokio::spawn(Arc::clone(&desk).work_lane(format!("{seat}{lane}"))));
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
}

struct Desk {
    client: Client,
    book: Book,
    /// Earlier lines by run and request.
    past: BTreeMap<(String, usize), Vec<Word>>,
    manner: Manner,
}

impl Desk {
    async fn work_lane(self: Arc<Self>, lane: String) {
        for number in 0.. {
            let case = case(&self.manner.kinds, &lane, number);
            let is_new = !self.past.contains_key(&(case.id.clone(), 0));
            if is_new && self.manner.stop().exists() {
                return;
            }
            self.do_case(&case).await;
            if is_new {
                System.sleep(self.manner.pause.mul_f64(fastrand::f64())).await;
            }
        }
    }

    async fn do_case(&self, case: &Case) {
        for deed in 0..case.deeds.len() {
            let past = self.past.get(&(case.id.clone(), deed)).map(Vec::as_slice).unwrap_or_default();
            if past.iter().any(Word::is_final) {
                continue;
            }
            let mut attempt = past.iter().filter(|word| **word == Word::Try).count();
            while !self.attempt(case, deed, attempt).await.is_final() {
                attempt += 1;
                System.sleep(Duration::from_millis(100)).await;
            }
            // A signal with an idempotency key may be repeated at any time.
            if matches!(case.deeds[deed], Deed::Signal { keyed: true, .. }) && fastrand::u8(..4) == 0 {
                self.attempt(case, deed, attempt + 1).await;
            }
        }
    }

    async fn attempt(&self, case: &Case, deed: usize, attempt: usize) -> Word {
        self.note(case, deed, attempt, Word::Try);
        let word = match self.ask(case, deed, attempt).await {
            Ok(word) => word,
            Err(error) => {
                let (kind, what) = (format!("{:?}", error.kind()), error.to_string());
                let advice = error.advice().unwrap_or_default().to_owned();
                match error.kind() {
                    ErrorKind::NotRunning => Word::Refused { kind, what },
                    _ => Word::Failed { kind, what, advice },
                }
            }
        };
        self.note(case, deed, attempt, word.clone());
        word
    }

    fn note(&self, case: &Case, deed: usize, attempt: usize, word: Word) {
        let note = Note { at: wall(), process: std::process::id(), run: case.id.clone(), deed, attempt, word };
        self.book.add(&serde_json::to_string(&note).unwrap());
    }

    async fn ask(&self, case: &Case, deed: usize, attempt: usize) -> wigwag::Result<Word> {
        match &case.deeds[deed] {
            Deed::Start => {
                self.client.start(case.of, &case.input).id(&case.id).await?;
                Ok(Word::Done)
            }
            Deed::Cancel => {
                self.client.run(&case.id)?.cancel().reason("a client said so").await?;
                Ok(Word::Done)
            }
            Deed::Signal { name, payload, keyed } => {
                let by = sender(&case.id, deed, attempt, *keyed);
                let mut call = self.client.signal(&case.id, name, payload).by(by);
                if *keyed {
                    call = call.key(format!("{}#{deed}", case.id));
                }
                if case.kind == Kind::Review {
                    call = call.start_if_absent(case.of, &case.input);
                }
                let receipt = call.await?;
                Ok(Word::Sent { id: receipt.id, suffix: receipt.suffix, repeated: receipt.repeated })
            }
        }
    }
}
