//! A place in which commands are run, and an engine beside them.

use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use wigwag::{Builder, Engine, Settings};

use crate::common::{good, text, wigwag};

/// A folder with a store in `.wigwag`, in which commands are run.
pub(crate) struct Place(pub(crate) tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        wigwag(self.0.path(), args)
    }

    /// What a command prints that does well and has nothing to say.
    #[track_caller]
    pub(crate) fn good(&self, args: &[&str]) -> String {
        good(&self.run(args))
    }

    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.good(&[args, &["--json"]].concat())).unwrap()
    }

    #[track_caller]
    pub(crate) fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn builder(&self) -> Builder {
        let mut settings = Settings::default();
        settings.lease = Duration::from_secs(3);
        settings.grace = Duration::from_millis(200);
        Engine::open(self.0.path().join(".wigwag").to_str().unwrap()).unwrap().settings(settings)
    }

    /// Waits until a run's status is this, and gives what `status` says of it.
    #[track_caller]
    pub(crate) fn until(&self, id: &str, status: &str) -> String {
        self.until_says(id, &format!("status      {status}\n"))
    }

    #[track_caller]
    pub(crate) fn until_says(&self, id: &str, wanted: &str) -> String {
        let mut said = String::new();
        for _ in 0..600 {
            said = self.good(&["status", id]);
            if said.contains(wanted) {
                return said;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("`{wanted}` did not come:\n{said}");
    }
}
