//! Stopping when asked to: SIGINT and SIGTERM raise a flag, a second one ends the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output;

/// On either signal `clean`s up and ends the process as if nothing caught it: for work in which nobody looks at a flag.
pub(crate) fn clean_up_at_the_end(clean: fn()) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch SIGINT and SIGTERM")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            output::note("interrupted; removing what was set up");
            clean();
            // Ends the process; if it cannot, the next signal does.
            let _ = emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// A flag that both signals raise. The second signal ends the process as if nothing caught it.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot catch SIGINT and SIGTERM")?;
    }
    Ok(flag)
}
