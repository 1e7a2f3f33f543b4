//! Stopping when asked to: SIGINT and SIGTERM raise a flag, a second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output;

/// Ends the process when it is told to, after cleaning up.
pub struct CleanEnd(Arc<AtomicBool>);

impl CleanEnd {
    /// On the first signal `clean`s up and ends the process as if nothing caught it, for work in which nobody looks at a flag;
    /// a second one ends it at once.
    pub fn with(clean: fn()) -> anyhow::Result<Self> {
        let begun = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&begun))
                .context("cannot catch SIGINT and SIGTERM")?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch SIGINT and SIGTERM")?;
        let noted = Arc::clone(&begun);
        let wait = move || {
            if let Some(signal) = signals.forever().next() {
                noted.store(true, Ordering::Relaxed);
                output::note("interrupted; removing what was set up");
                clean();
                // Does not return, unless the signal could not be given its own meaning back.
                let _ = emulate_default_handler(signal);
                std::process::abort();
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .context("cannot start a thread")?;
        Ok(Self(begun))
    }

    /// The result of the work; not while it is the result of cleaning up under its feet, after which the process ends.
    pub fn unless_begun<T>(&self, result: T) -> T {
        while self.0.load(Ordering::Relaxed) {
            std::thread::park();
        }
        result
    }
}

/// A flag that both signals raise. The second signal ends the process as if nothing caught it.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot catch SIGINT and SIGTERM")?;
    }
    Ok(flag)
}
