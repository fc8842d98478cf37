//! Clients: they start runs, send signals and cancel, and write down what they try and what they are told.
//!
//! A client has a seat and some lanes, each of which does one thing after the other. Killed, it is followed by another
//! at the same seat, which reads what the first had tried: what was not answered is done again, a start under its id, a
//! signal under its key, and a signal without a key as a new one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Client, ErrorKind};
use wigwag_store::{Clock as _, System};

use super::cases::{Case, Deed, Kind, case};
use super::ledger::{Book, lines, wall, whole};

/// One line of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// By the calendar of this machine, in microseconds.
    pub(crate) at: u64,
    pub(crate) process: u32,
    /// The run.
    pub(crate) run: String,
    /// Which deed of its case.
    pub(crate) deed: usize,
    /// How often it was tried before.
    pub(crate) attempt: usize,
    pub(crate) word: Word,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It is about to be asked.
    Try,
    /// It was acknowledged.
    Done,
    /// The signal was acknowledged, with this place in the inbox.
    Sent { id: String, suffix: String, repeated: bool },
    /// It was refused for good.
    Refused { kind: String, what: String },
    /// It failed, and is tried again.
    Failed { kind: String, what: String, advice: String },
}

impl Word {
    /// Whether it need not be tried again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Done | Self::Sent { .. } | Self::Refused { .. })
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Done | Self::Sent { .. })
    }
}

/// Who signals are sent by, so that each can be told from all others.
pub(crate) fn sender(run: &str, deed: usize, attempt: usize, keyed: bool) -> String {
    // Under a key all attempts are the same signal.
    if keyed { format!("{run}#{deed}") } else { format!("{run}#{deed}/{attempt}") }
}

/// How clients go about it.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) ledger: PathBuf,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) lanes: usize,
    /// The longest pause between two cases of a lane.
    pub(crate) pause: Duration,
}

impl Manner {
    /// Once this file is there, no further case is begun.
    pub(crate) fn stop(&self) -> PathBuf {
        self.ledger.join("stop")
    }
}

/// All lines of a seat, in order of time.
pub(crate) fn notes(ledger: &Path, seat: &str) -> Vec<Note> {
    let mut notes: Vec<Note> =
        lines(&ledger.join("clients").join(seat)).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    notes.sort_by_key(|note| note.at);
    notes
}

/// Whether a process has asked for something and was not answered yet.
pub(crate) fn is_at_work(ledger: &Path, seat: &str, process: u32) -> bool {
    let book = ledger.join("clients").join(seat).join(process.to_string());
    let said = std::fs::read_to_string(book).unwrap_or_default();
    let tries = whole(&said).filter(|line| line.ends_with(r#""word":"Try"}"#)).count();
    tries * 2 > whole(&said).count()
}

/// All lines of all seats.
pub(crate) fn all_notes(ledger: &Path) -> Vec<Note> {
    let seats = std::fs::read_dir(ledger.join("clients")).into_iter().flatten();
    let seats = seats.map(|seat| seat.unwrap().file_name().into_string().unwrap());
    seats.flat_map(|seat| notes(ledger, &seat)).collect()
}

/// The cases that were begun.
pub(crate) fn cases(kinds: &[Kind], notes: &[Note]) -> Vec<Case> {
    let runs: BTreeMap<&str, ()> = notes.iter().map(|note| (note.run.as_str(), ())).collect();
    let of_run = |run: &str| {
        let [_, lane, number] = run.split('-').collect::<Vec<_>>()[..] else { panic!("not a case: {run}") };
        case(kinds, lane, number.parse().unwrap())
    };
    runs.into_keys().map(of_run).collect()
}

/// Does what there is to do at a seat until it is told to stop, or killed.
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
    /// What was said of each deed of each run before.
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
            // Who sends under a key may repeat it whenever they like.
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
