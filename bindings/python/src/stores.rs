//! Stores of this process: all users of one URL share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use wigwag::{Client, Engine};
use wigwag_store::{OpenSettings, Opened};

use crate::lock;

/// An open store, with the client of an engine on it, if there is one in this process.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    process: u32,
    opened: Option<Opened>,
    clients: Mutex<Vec<(u64, Client)>>,
}

/// Stores by URL, and the process that opened them.
type Stores = Option<(u32, HashMap<String, Weak<StoreHandle>>)>;

static STORES: Mutex<Stores> = Mutex::new(None);

impl Drop for StoreHandle {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child has none of the threads that would be stopped, and the locks are its parent's.
            std::mem::forget(self.opened.take());
            std::mem::take(&mut *lock(&self.clients)).into_iter().for_each(std::mem::forget);
        }
    }
}

impl StoreHandle {
    /// Opens a store, or returns the open one. Blocks while it does.
    pub(crate) fn open(url: &str) -> wigwag::Result<Arc<Self>> {
        let process = std::process::id();
        let known = |stores: &mut Stores| {
            if stores.as_ref().is_none_or(|(of, _)| *of != process) {
                *stores = Some((process, HashMap::new()));
            }
            stores.as_ref().and_then(|(_, stores)| stores.get(url)?.upgrade())
        };
        if let Some(store) = known(&mut lock(&STORES)) {
            return Ok(store);
        }
        let mut settings = OpenSettings::default();
        settings.fleet.is_wanted = wigwag::concerns_others;
        let opened = wigwag_store::open(url, &settings)?;
        let mut stores = lock(&STORES);
        if let Some(store) = known(&mut stores) {
            return Ok(store);
        }
        let store = Arc::new(Self { process, opened: Some(opened), clients: Mutex::default() });
        if let Some((_, stores)) = &mut *stores {
            stores.retain(|_, store| store.strong_count() > 0);
            stores.insert(url.to_owned(), Arc::downgrade(&store));
        }
        Ok(store)
    }

    pub(crate) fn opened(&self) -> wigwag::Result<Opened> {
        self.opened.clone().ok_or_else(|| crate::client::invalid("the store was closed"))
    }

    /// The client of the engine that was started last, which drives its runs at once; otherwise a client without an engine.
    pub(crate) async fn client(&self) -> wigwag::Result<Client> {
        if let Some((_, client)) = lock(&self.clients).last() {
            return Ok(client.clone());
        }
        let client = Engine::on(self.opened()?).client().await?;
        let mut clients = lock(&self.clients);
        if clients.is_empty() {
            clients.push((0, client.clone()));
        }
        Ok(client)
    }

    pub(crate) fn began(&self, engine: u64, client: Client) {
        lock(&self.clients).push((engine, client));
    }

    pub(crate) fn ended(&self, engine: u64) {
        lock(&self.clients).retain(|(of, _)| *of != engine);
    }
}
