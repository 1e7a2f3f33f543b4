//! SIGINT and SIGTERM: the first raises a flag or cleans up, the second ends the process. Or both are another
//! process's matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output;

/// Cleans up and ends the process at a signal.
pub struct CleanEnd(Arc<AtomicBool>);

impl CleanEnd {
    /// Installs handlers for work that checks no flag: the first signal calls `clean` and ends the process
    /// with the signal's default action; a second signal ends the process at once.
    ///
    /// # Errors
    /// The handlers or their thread cannot be set up.
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
                // Returns only if the default action could not be restored.
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

    /// Returns the result of the work. Never returns once cleaning up has begun: the work's error would only
    /// be a consequence of it.
    pub fn unless_begun<T>(&self, result: T) -> T {
        while self.0.load(Ordering::Relaxed) {
            std::thread::park();
        }
        result
    }
}

/// Returns a flag that both signals raise. A second signal ends the process with its default action.
///
/// # Errors
/// The handlers cannot be installed.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot catch SIGINT and SIGTERM")?;
    }
    Ok(flag)
}

/// Has a thread call `pass` with the number of each SIGHUP, SIGINT, SIGQUIT and SIGTERM, which do not end
/// this process then.
///
/// # Errors
/// The handlers or their thread cannot be set up.
pub fn pass_on(pass: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
    let mut signals = signals.context("cannot catch SIGINT and SIGTERM")?;
    let relay = move || signals.forever().for_each(pass);
    std::thread::Builder::new().name("signals".to_owned()).spawn(relay).context("cannot start a thread")?;
    Ok(())
}
