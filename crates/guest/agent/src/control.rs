//! The agent's control socket: one JSON object a line, one line back.
//!
//! | request | answer |
//! |---|---|
//! | `{"do":"set","key":"load","value":5,"for_ms":1000}` | `{"ok":"done"}` |
//! | `{"do":"unset","key":"load"}` | `{"ok":"done"}` |
//! | `{"do":"list"}` | `{"ok":{"values":[...]}}` |
//! | `{"do":"status"}` | `{"ok":{"status":{...}}}` |
//! | anything else | `{"error":"what is wrong"}` |

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::publish::Listed;

/// Longest line, in bytes, that either side reads.
pub const LINE_LIMIT: usize = 64 * 1024;

/// Longest that a client waits for the agent.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Set a value.
    Set {
        /// Slot number or configured name.
        key: String,
        /// The value.
        value: u64,
        /// Milliseconds after which it becomes unknown again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_ms: Option<u64>,
    },
    /// Make a value unknown.
    Unset {
        /// Slot number or configured name.
        key: String,
    },
    /// List the values that are set.
    List,
    /// Tell how the agent is.
    Status,
}

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// It was done.
    Ok(Answer),
    /// It was not, and why.
    Error(String),
}

/// The answer to a request that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// To `list`.
    Values(Vec<Listed>),
    /// To `status`.
    Status(Status),
}

/// How the agent is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The tenant.
    pub tenant: String,
    /// The user VM.
    pub vm: String,
    /// Epoch of this start.
    pub epoch: u64,
    /// Snapshots published since.
    pub published: u64,
    /// Publications that the page did not take.
    pub failed: u64,
    /// Moments at which a snapshot was due and none was made, since the machine was busy.
    pub missed: u64,
    /// Milliseconds between publications.
    pub interval_ms: u64,
    /// Seconds since this start.
    pub uptime_s: f64,
    /// Share of one core that the agent itself used since then, percent.
    pub cpu_percent: f64,
    /// Fields of the newest snapshot that are known, by number.
    pub known: Vec<(u32, u64)>,
}

/// Reads one request line.
///
/// # Errors
///
/// A sentence for the client.
pub fn parse(line: &[u8]) -> Result<Request, String> {
    serde_json::from_slice(line).map_err(|e| format!("not a request: {e}"))
}

/// Feeds any bytes to the parsers of requests and of answers; for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    let _reply = serde_json::from_slice::<Reply>(bytes);
    if let Ok(request) = parse(bytes) {
        let text = serde_json::to_vec(&request).expect("a request is plain data");
        assert_eq!(parse(&text).as_ref(), Ok(&request), "what was read is written and read the same");
    }
}

/// Why the agent could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens.
    #[error("cannot reach the agent at {}; is `p4shield agent` running?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the agent did not answer")]
    Io(#[source] std::io::Error),
    /// The answer is no answer.
    #[error("the agent's answer makes no sense; is it of another version?")]
    Answer(#[source] serde_json::Error),
    /// It refused.
    #[error("the agent refused: {0}")]
    Refused(String),
}

/// Sends one request to the agent at `socket`, and waits for its answer.
///
/// # Errors
///
/// When nobody listens, the connection breaks, or the agent refuses.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, ClientError> {
    let connect = |source| ClientError::Connect { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(connect)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(ClientError::Io)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(ClientError::Io)?;
    let mut line = serde_json::to_vec(request).expect("a request is plain data");
    line.push(b'\n');
    stream.write_all(&line).map_err(ClientError::Io)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(LINE_LIMIT as u64)).read_until(b'\n', &mut answer).map_err(ClientError::Io)?;
    match serde_json::from_slice(&answer).map_err(ClientError::Answer)? {
        Reply::Ok(answer) => Ok(answer),
        Reply::Error(why) => Err(ClientError::Refused(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_documented() {
        let set = Request::Set { key: "load".into(), value: 5, for_ms: Some(1000) };
        assert_eq!(parse(br#"{"do":"set","key":"load","value":5,"for_ms":1000}"#), Ok(set));
        assert_eq!(parse(br#"{"do":"unset","key":"1"}"#), Ok(Request::Unset { key: "1".into() }));
        assert_eq!(parse(br#"{"do":"list"}"#), Ok(Request::List));
        assert_eq!(parse(br#"{"do":"status"}"#), Ok(Request::Status));
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        for bad in [
            &b"{"[..],
            b"",
            b"[]",
            br#"{"do":"fly"}"#,
            br#"{"do":"set","key":"a"}"#,
            br#"{"do":"set","key":"a","value":-1}"#,
            br#"{"do":"set","key":"a","value":1,"forever":true}"#,
            b"\xff\xfe",
        ] {
            assert!(parse(bad).unwrap_err().starts_with("not a request: "));
        }
    }

    #[test]
    fn answers_read_as_documented() {
        let text = |r: &Reply| serde_json::to_string(r).unwrap();
        assert_eq!(text(&Reply::Ok(Answer::Done)), r#"{"ok":"done"}"#);
        assert_eq!(text(&Reply::Ok(Answer::Values(vec![]))), r#"{"ok":{"values":[]}}"#);
        assert_eq!(text(&Reply::Error("no".into())), r#"{"error":"no"}"#);
    }
}
