//! A folder for commands, with an engine in the test's process.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use wigwag::{Builder, Engine, LinkSecret, Settings};
use wigwag_server::{Builder as ServerBuilder, Running, Server};

use crate::common::{command, good, text, wigwag};

/// Generates two tests of each scenario: on a store directly, and through a server with the same store.
#[macro_export]
macro_rules! both {
    ($($name:ident)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_store() {
                super::$name(super::Place::new()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn through_a_server() {
                super::$name(super::Place::served().await).await;
            }
        }
    )*};
}

/// A folder with a store in `.wigwag`, in which commands are run; if there is a server, they use it.
pub(crate) struct Place(pub(crate) tempfile::TempDir, pub(crate) Option<Running>);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), None)
    }

    /// Creates a place whose commands use a server.
    pub(crate) async fn served() -> Self {
        Self::served_with(|server| server).await
    }

    pub(crate) async fn served_with(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let mut place = Self::new();
        let mut settings = Settings::default();
        settings.link_secret = Some(LinkSecret::new("a secret of the tests").unwrap());
        let client = place.builder().settings(settings).client().await.unwrap();
        let server = Server::builder(client).bind(([127, 0, 0, 1], 0).into());
        place.1 = Some(change(server).start().await.unwrap());
        place
    }

    /// Returns the server's URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.1.as_ref().unwrap().addr())
    }

    /// Returns a command to run. The server is named by the environment, so that hints need not name it.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.0.path(), args);
        if self.1.is_some() {
            command.env("WIGWAG_SERVER", self.url());
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        match self.1 {
            Some(_) => self.command(args).output().unwrap(),
            None => wigwag(self.0.path(), args),
        }
    }

    /// Returns the output of a command that must succeed without messages.
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

    /// Waits until a run has this status, and returns the output of `status`.
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
