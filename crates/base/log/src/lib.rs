//! Log lines: their format, and a limit for each cause.
//!
//! Each line that an operator may alert on has a field `event`; docs/reference/log-events.md lists them, and
//! `make lint` compares the list with the code.

#![forbid(unsafe_code)]

mod causes;
mod limit;

pub use limit::Limit;

/// Environment variable of the format.
const FORMAT: &str = "P4SHIELD_LOG_FORMAT";

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people, with `name="value"` for each field.
    Text,
    /// A JSON object a line, with each field beside `timestamp`, `level` and `message`.
    Json,
}

impl Format {
    /// Reads the format from the environment's `P4SHIELD_LOG_FORMAT`; text if it is not set.
    ///
    /// # Errors
    /// The variable names no format.
    pub fn from_environment() -> Result<Self, String> {
        Self::parse(std::env::var(FORMAT).ok().as_deref())
    }

    fn parse(text: Option<&str>) -> Result<Self, String> {
        match text {
            None | Some("" | "text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(format!("{FORMAT} is {other:?}; write `text` or `json`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_text_or_json() {
        assert_eq!(Format::parse(None), Ok(Format::Text));
        assert_eq!(Format::parse(Some("text")), Ok(Format::Text));
        assert_eq!(Format::parse(Some("json")), Ok(Format::Json));
        assert!(Format::parse(Some("xml")).is_err_and(|why| why.contains("P4SHIELD_LOG_FORMAT")));
    }
}
