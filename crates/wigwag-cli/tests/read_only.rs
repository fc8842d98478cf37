//! Commands on a read-only store.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{bad, good, text, wigwag};
use wigwag_store::conformance;

/// A read-only mount of a folder.
struct ReadOnlyMount(tempfile::TempDir);

impl ReadOnlyMount {
    /// Mounts a folder; `None`, with a message, where mounting is not permitted.
    fn of(folder: &Path) -> Option<Self> {
        let mount = tempfile::tempdir().unwrap();
        let run = |args: &[&str], paths: &[&Path]| {
            Command::new("mount").args(args).args(paths).status().is_ok_and(|status| status.success())
        };
        if run(&["--bind"], &[folder, mount.path()]) && run(&["-o", "remount,bind,ro"], &[mount.path()]) {
            return Some(Self(mount));
        }
        conformance::skip("no file system can be mounted here, so that commands on a read-only one are not tried");
        None
    }
}

impl Drop for ReadOnlyMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn commands_that_read_work_on_a_read_only_file_system_and_commands_that_write_say_why_not() {
    let folder = tempfile::tempdir().unwrap();
    assert!(wigwag(folder.path(), &["start", "greet", "--id", "g"]).status.success());
    let Some(mount) = ReadOnlyMount::of(folder.path()) else { return };
    let run = |args: &[&str]| wigwag(mount.0.path(), args);
    let reading: [(&[&str], &str); 10] = [
        (&["list"], "pending"),
        (&["status", "g"], "status      pending"),
        (&["steps", "g"], ""),
        (&["history", "g"], "run.started"),
        (&["inbox"], ""),
        (&["signals", "g"], ""),
        (&["ls"], "workflow/g/log/0000000001.json"),
        (&["cat", "workflow/g/state.json"], "pending"),
        (&["sweep", "--dry-run"], "1 unfinished run"),
        (&["doctor"], "note     read-only            the store is read-only"),
    ];
    for (args, shown) in reading {
        let output = run(args);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains(shown), "{args:?}: {said}{}", text(&output.stderr));
    }
    let doctor = good(&run(&["doctor"]));
    assert!(doctor.contains("ok       integrity") && doctor.contains("1 run (1 unfinished)"), "{doctor}");
    for args in [&["cancel", "g"][..], &["signal", "g", "go"]] {
        bad(&run(args), 1, "the store is open for reading only", "must be writable by this user");
    }
    bad(&run(&["start", "greet"]), 1, "Read-only file system", "must be writable by this user");
}
