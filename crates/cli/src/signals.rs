//! Stopping when asked to: SIGINT and SIGTERM raise a flag, a second one ends the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

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
