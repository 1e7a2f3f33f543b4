//! The limit as a layer of `tracing`.
//!
//! `tracing-throttle` (0.4) tells causes apart by their whole text, so that a peer whose process number
//! differs each time has no limit, and its summaries need an asynchronous runtime in the switch's process.

use crate::causes::{Causes, Omitted};
use std::collections::hash_map::RandomState;
use std::fmt::{Debug, Write};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Fields that tell causes apart. They come from the configuration or the kernel; what a peer chooses
/// freely, such as its process number, is not among them.
const SUBJECT: [&str; 10] =
    ["tenant", "vm", "direction", "port", "interface", "wire", "side", "queue", "kind", "page"];
/// Events without a limit: reports of omitted lines; problems, which the daemon limits itself such that
/// each end of a problem follows its beginning; and the lines of a reload, which root requests.
const UNLIMITED: [&str; 5] =
    ["lines_omitted", "problem_began", "problem_ended", "reload_applied", "reload_refused"];
/// The longest kept name of an event.
const NAME_BYTES: usize = 64;

/// Layer that omits lines of a cause that has had too many, and reports how many it omitted.
///
/// A cause is an event and its subject: tenant, VM, port and the like. Lines below `info` have no limit.
/// Reports come with the next line of any cause.
pub struct Limit {
    causes: Mutex<Causes>,
    hasher: RandomState,
}

impl Limit {
    /// Creates the layer.
    #[allow(clippy::new_without_default, reason = "the limit begins when it is made")]
    pub fn new() -> Self {
        Self { causes: Mutex::new(Causes::new(Instant::now())), hasher: RandomState::new() }
    }

    fn admit(&self, event: &Event<'_>) -> (bool, Vec<Omitted>) {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return (true, Vec::new());
        }
        let mut line = Line { hasher: self.hasher.build_hasher(), event: String::new() };
        event.record(&mut line);
        if UNLIMITED.contains(&line.event.as_str()) {
            return (true, Vec::new());
        }
        if line.event.is_empty() {
            // A library's line, for example: its place in the code stands for the cause.
            metadata.callsite().hash(&mut line.hasher);
            line.set_event(metadata.target());
        }
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.admit(Instant::now(), line.hasher.finish(), &line.event)
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let (admitted, reports) = self.admit(event);
        for Omitted { event, lines } in reports {
            tracing::warn!(
                event = "lines_omitted",
                of = event,
                lines,
                "further lines of this event are omitted; this counts them"
            );
        }
        admitted
    }
}

/// A line's event, and the hash of its cause.
struct Line<H> {
    hasher: H,
    event: String,
}

impl<H: Hasher> Line<H> {
    fn set_event(&mut self, name: &str) {
        let end = (0..=NAME_BYTES.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
        name[..end.unwrap_or(0)].clone_into(&mut self.event);
    }
}

impl<H: Hasher> Visit for Line<H> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            self.set_event(value);
        } else if !SUBJECT.contains(&field.name()) {
            return;
        }
        (field.name(), value).hash(&mut self.hasher);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if SUBJECT.contains(&field.name()) {
            let mut text = String::new();
            let _ = write!(text, "{value:?}");
            self.record_str(field, &text);
        }
    }
}
