//! Output of a command: results on standard output, everything else on standard error.

use std::io::{IsTerminal, Write};

use p4shield_log::{Format, Limit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging to standard error. P4SHIELD_LOG sets the level, else the number of `-v`;
/// P4SHIELD_LOG_FORMAT sets the format, unless `json` does.
pub fn logging(verbose: u8, json: bool) {
    let level = match verbose {
        0 => "warn,p4shield_daemon=info,p4shield_tenantswitch=info,p4shield_agent=info",
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("P4SHIELD_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LossyStderr)
        .with_ansi(coloured(&std::io::stderr()));
    let format = Format::from_environment();
    let json = json || format == Ok(Format::Json);
    // Fails only if a subscriber is installed already; `main` calls this once, first.
    let _ = if json {
        log.json().flatten_event(true).finish().with(Limit::new()).try_init()
    } else {
        log.finish().with(Limit::new()).try_init()
    };
    if let Err(why) = format {
        note(why);
    }
}

/// Standard error, whose reader may be gone: a process that outlives it goes on without a log.
struct LossyStderr;

impl Write for LossyStderr {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns whether to colour output to `to`: only on a terminal, and not if NO_COLOR is set.
pub fn coloured(to: &impl IsTerminal) -> bool {
    to.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Prints a line of a result. A closed pipe (`| head`) is not an error.
pub fn line(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints text that contains its line ends.
pub fn text(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints text that contains its line ends. Returns whether it was written: a command that prints without end
/// stops when its reader has gone.
#[must_use]
pub fn try_text(text: &str) -> bool {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Prints a result as one line of JSON.
///
/// # Errors
/// The value cannot be serialised.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
    Ok(())
}

/// Prints a remark on standard error.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "p4shield: {text}");
}

/// Prints rendered diagnostics on standard error.
pub fn diagnostics(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
}

/// A progress bar for work that takes over a second; shown on a terminal only.
pub struct Progress(indicatif::ProgressBar);

impl Progress {
    /// Starts a bar of `steps` steps.
    pub fn new(steps: usize) -> Self {
        let bar = indicatif::ProgressBar::new(steps as u64);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Begins the next step.
    pub fn step(&self, what: String) {
        self.0.inc(u64::from(!self.0.message().is_empty()));
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Prints an error with its causes, each once.
pub fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    let _ = writeln!(std::io::stderr(), "p4shield: {text}");
}
