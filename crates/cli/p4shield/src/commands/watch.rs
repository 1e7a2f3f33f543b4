//! Shows an answer once, or again and again.

use std::io::IsTerminal as _;
use std::time::Duration;

use p4shield_console::output;
use serde::Serialize;

/// Clears the terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// When and in which form an answer is shown.
#[derive(Debug, clap::Args)]
pub(super) struct Watch {
    /// Show again every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1)]
    #[arg(default_missing_value = "1", value_parser = seconds)]
    watch: Option<f64>,
    /// Print JSON, one line each time
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let range = 0.1..=3600.0;
    let parsed = text.parse().ok().filter(|n| range.contains(n));
    parsed.ok_or_else(|| "write 0.1 to 3600 seconds; names come before --watch".to_owned())
}

impl Watch {
    /// Shows what `ask` returns, as JSON or as the text of it. Returns the last answer, which is the only
    /// one without `--watch`.
    ///
    /// # Errors
    /// Those of `ask`. While watching, those for which `passes` returns a remark are shown and end nothing.
    pub(super) fn show<T: Serialize, E: Into<anyhow::Error>>(
        &self,
        ask: impl Fn() -> Result<T, E>,
        text: impl Fn(&T) -> String,
        passes: impl Fn(&E) -> Option<String>,
    ) -> anyhow::Result<T> {
        let Some(seconds) = self.watch else {
            let answer = ask().map_err(E::into)?;
            let _ = output::try_text(&self.rendered(&answer, &text)?);
            return Ok(answer);
        };
        let clear = if !self.json && std::io::stdout().is_terminal() { CLEAR } else { "" };
        loop {
            match ask() {
                Ok(answer) => {
                    if !output::try_text(&format!("{clear}{}", self.rendered(&answer, &text)?)) {
                        return Ok(answer);
                    }
                }
                Err(error) => output::note(passes(&error).ok_or(error).map_err(E::into)?),
            }
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }
    }

    fn rendered<T: Serialize>(&self, answer: &T, text: impl Fn(&T) -> String) -> anyhow::Result<String> {
        Ok(if self.json { serde_json::to_string(answer)? + "\n" } else { text(answer) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["web", "0", "nan", "inf", "-1", "99999"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
