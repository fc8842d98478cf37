//! The test vectors of `conformance/hub`, against the hub alone.

use std::path::Path;

use wigwag_hub::Settings;
use wigwag_hub::testing::{Sockets, Vector, World};

struct Alone(World);

impl Sockets for Alone {
    fn open(&mut self, name: &str) {
        self.0.open(name);
    }

    fn send(&mut self, name: &str, text: &str, _: bool) {
        // Each frame is one millisecond later than the previous one.
        self.0.now += 1;
        self.0.text(name, text);
    }

    fn receive(&mut self, name: &str) -> Result<String, String> {
        self.0.settle();
        self.0.next_text(name).ok_or_else(|| format!("nothing came for `{name}`"))
    }

    fn close(&mut self, name: &str) {
        self.0.close(name);
    }

    fn closed(&mut self, name: &str) -> Result<u16, String> {
        self.0.settle();
        self.0.closed(name).ok_or_else(|| format!("`{name}` is still open"))
    }

    fn now(&self) -> u64 {
        self.0.now
    }
}

#[test]
fn every_vector_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/hub");
    let all = Vector::all(&folder);
    assert!(all.len() > 60, "only {} vectors", all.len());
    // The vectors of runs need a store of runs, and frames of that size never reach the hub; the
    // server's tests run both.
    let elsewhere = |name: &str| name.starts_with("runs-") || name == "size-beyond";
    let own = all.iter().filter(|vector| !elsewhere(&vector.name));
    let failed: Vec<String> =
        own.filter_map(|vector| vector.run(&mut Alone(World::new(Settings::default())), "v1").err()).collect();
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n\n"));
}
