//! The agent's control socket. Requests and replies are JSON objects, one per line.
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

pub use crate::handshake::HandshakeStatus;
pub use crate::publish::ListedValue;

/// Maximum length of a line in bytes, in both directions.
pub const LINE_LIMIT: usize = 64 * 1024;

/// Time that a client waits for the agent.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Sets a value.
    Set {
        /// Slot number or configured name.
        key: String,
        /// The value.
        value: u64,
        /// Milliseconds after which the value becomes unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_ms: Option<u64>,
    },
    /// Makes a value unknown.
    Unset {
        /// Slot number or configured name.
        key: String,
    },
    /// Lists the set values.
    List,
    /// Reports the agent's status.
    Status,
}

/// The agent's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The request succeeded.
    Ok(Answer),
    /// The request failed, with the reason.
    Error(String),
}

/// The answer to a request that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Success without a result.
    Done,
    /// Result of `list`.
    Values(Vec<ListedValue>),
    /// Result of `status`.
    Status(Box<Status>),
}

/// The agent's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the user VM.
    pub vm: String,
    /// The handshakes with the P4 VM, if the key comes from them.
    #[serde(default)]
    pub handshake: Option<HandshakeStatus>,
    /// Number of the key that snapshots are sealed with; without a session zeros.
    #[serde(default)]
    pub key: String,
    /// Epoch of this start.
    pub epoch: u64,
    /// Snapshots published since this start.
    pub published: u64,
    /// Publications that failed because the page was damaged.
    pub failed: u64,
    /// Publications that were skipped because the machine was busy.
    pub missed: u64,
    /// Milliseconds between publications.
    pub interval_ms: u64,
    /// Seconds since this start.
    pub uptime_s: f64,
    /// CPU time of the agent since this start, in percent of one core.
    pub cpu_percent: f64,
    /// Known fields of the newest snapshot: number and value.
    pub known: Vec<(u32, u64)>,
}

/// Parses a request line.
///
/// # Errors
///
/// Returns an error message for the client.
pub fn parse(line: &[u8]) -> Result<Request, String> {
    serde_json::from_slice(line).map_err(|e| format!("not a request: {e}"))
}

/// For fuzzers: parses any bytes as a request and as a reply.
pub fn fuzz(bytes: &[u8]) {
    let _reply = serde_json::from_slice::<Reply>(bytes);
    if let Ok(request) = parse(bytes) {
        let text = serde_json::to_vec(&request).expect("a request is plain data");
        assert_eq!(parse(&text).as_ref(), Ok(&request), "a parsed request survives encoding");
    }
}

/// Reason why a request to the agent failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No agent listens on the socket.
    #[error("cannot reach the agent at {}: check that `p4shield agent` is running", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed.
    #[error("the connection to the agent failed")]
    Io(#[source] std::io::Error),
    /// The reply is invalid.
    #[error("the agent sent an invalid reply: check that agent and client have the same version")]
    Answer(#[source] serde_json::Error),
    /// The agent refused the request.
    #[error("the agent refused the request: {0}")]
    Refused(String),
}

/// Sends a request to the agent at `socket` and waits for its reply.
///
/// # Errors
///
/// If no agent listens, the connection fails, or the agent refuses the request.
pub fn send_request(socket: &Path, request: &Request) -> Result<Answer, ClientError> {
    let connect = |source| ClientError::Connect { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(connect)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(ClientError::Io)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(ClientError::Io)?;
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
    fn requests_are_parsed_as_documented() {
        let set = Request::Set { key: "load".into(), value: 5, for_ms: Some(1000) };
        assert_eq!(parse(br#"{"do":"set","key":"load","value":5,"for_ms":1000}"#), Ok(set));
        assert_eq!(parse(br#"{"do":"unset","key":"1"}"#), Ok(Request::Unset { key: "1".into() }));
        assert_eq!(parse(br#"{"do":"list"}"#), Ok(Request::List));
        assert_eq!(parse(br#"{"do":"status"}"#), Ok(Request::Status));
    }

    #[test]
    fn invalid_requests_are_refused_with_a_message() {
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
    fn replies_are_encoded_as_documented() {
        let text = |r: &Reply| serde_json::to_string(r).unwrap();
        assert_eq!(text(&Reply::Ok(Answer::Done)), r#"{"ok":"done"}"#);
        assert_eq!(text(&Reply::Ok(Answer::Values(vec![]))), r#"{"ok":{"values":[]}}"#);
        assert_eq!(text(&Reply::Error("no".into())), r#"{"error":"no"}"#);
    }
}
