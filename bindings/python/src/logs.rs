//! Warnings of the engine on their way to Python's logging: by the loop that started a worker last.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, Once, Weak};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::lock;
use crate::mailbox::{LOG, Post};

static POST: Mutex<Weak<Post>> = Mutex::new(Weak::new());
static INSTALLED: Once = Once::new();

/// Lets this loop log what the engine warns of.
pub(crate) fn follow(post: &Arc<Post>) {
    *lock(&POST) = Arc::downgrade(post);
    INSTALLED.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(ToPython).with(LevelFilter::WARN);
        // If something else in the process collects events, they are left to it.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
}

struct ToPython;

impl<S: Subscriber> Layer<S> for ToPython {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(post) = lock(&POST).upgrade() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let is_error = u64::from(*event.metadata().level() == Level::ERROR);
        post.put((LOG, is_error, 0, 0, 0, Some(text.message + &text.fields)));
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
