//! The messages of RFC 7047 that a reader of one database needs.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::rows::{Bridge, Interface, Port, Root, Updates};

/// The `id` of the request `monitor`.
pub(crate) const MONITOR: u64 = 1;
/// The `id` of the request `echo`, sent after a long silence.
pub(crate) const PROBE: u64 = 2;

/// A received message.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// The answer to [`MONITOR`]: the complete contents.
    Contents(Box<Updates>),
    /// The answer to [`MONITOR`]: an error.
    Refused(String),
    /// Changes.
    Update(Box<Updates>),
    /// The server checks whether the client lives; the answer has the same parameters and id.
    Echo { params: &'a RawValue, id: &'a RawValue },
    /// A message that needs no action.
    Other,
}

/// Any message of JSON-RPC 1.0; `null` is read as `None`.
#[derive(Deserialize)]
struct Any<'a> {
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Parses a message.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message<'_>, serde_json::Error> {
    let any: Any<'_> = serde_json::from_slice(bytes)?;
    match (any.method.as_deref(), any.params, any.id) {
        (Some("update"), Some(params), _) => {
            let (IgnoredAny, updates) = serde_json::from_str(params.get())?;
            Ok(Message::Update(updates))
        }
        (Some("echo"), Some(params), Some(id)) => Ok(Message::Echo { params, id }),
        (None, _, Some(id)) if id.get() == "1" => match (any.result, any.error) {
            (Some(result), None) => Ok(Message::Contents(serde_json::from_str(result.get())?)),
            (_, error) => Ok(Message::Refused(reason(error.map_or("without a reason", RawValue::get)))),
        },
        _ => Ok(Message::Other),
    }
}

/// Returns the start of the server's text, without control characters, for a log.
fn reason(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the request for the contents of all needed columns and for their changes.
pub(crate) fn monitor() -> Vec<u8> {
    let columns = |names: &[&str]| serde_json::json!({ "columns": names });
    let tables = serde_json::json!({
        "Open_vSwitch": columns(&Root::COLUMNS),
        "Bridge": columns(&Bridge::COLUMNS),
        "Port": columns(&Port::COLUMNS),
        "Interface": columns(&Interface::COLUMNS),
    });
    let request = serde_json::json!({
        "method": "monitor", "params": ["Open_vSwitch", "p4shield", tables], "id": MONITOR
    });
    request.to_string().into_bytes()
}

/// Returns the request that checks whether the server lives.
pub(crate) fn probe() -> Vec<u8> {
    format!(r#"{{"method":"echo","params":[],"id":{PROBE}}}"#).into_bytes()
}

/// Returns the answer to an `echo`.
pub(crate) fn echo_answer(params: &RawValue, id: &RawValue) -> Vec<u8> {
    format!(r#"{{"result":{},"error":null,"id":{}}}"#, params.get(), id.get()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_answered_with_its_parameters() {
        let echo = br#"{"id":["a", 7],"method":"echo","params":[ "x",{"y":[1.50]} ]}"#;
        let Ok(Message::Echo { params, id }) = parse(echo) else { panic!("no echo") };
        let answer = String::from_utf8(echo_answer(params, id)).unwrap();
        assert_eq!(answer, r#"{"result":[ "x",{"y":[1.50]} ],"error":null,"id":["a", 7]}"#);
    }

    #[test]
    fn a_refusal_has_the_servers_reason() {
        let text = br#"{"id":1,"result":null,"error":{"error":"unknown database","details":"line\none"}}"#;
        let Ok(Message::Refused(why)) = parse(text) else { panic!("no refusal") };
        assert!(why.contains("unknown database"), "{why}");
        assert!(matches!(parse(br#"{"id":1}"#), Ok(Message::Refused(_))));
    }

    #[test]
    fn other_messages_are_ignored() {
        for text in [
            r#"{"method":"stolen","params":["l"],"id":null}"#,
            r#"{"id":2,"result":[],"error":null}"#,
            r#"{"id":99,"result":{},"error":null}"#,
            r#"{"method":"echo","params":[],"id":null}"#,
            "{}",
        ] {
            assert!(matches!(parse(text.as_bytes()), Ok(Message::Other)), "{text}");
        }
    }

    #[test]
    fn messages_of_the_wrong_form_are_errors() {
        for text in [
            r#"{"method":"update","params":["p4shield"]}"#,
            r#"{"method":"update","params":["p4shield",{"Port":{"7":{}}}]}"#,
            r#"{"method":"update","params":["p4shield",{"Port":[]}]}"#,
            r#"{"id":1,"result":{"Interface":{"x":{"new":{}}}},"error":null}"#,
            r#"{"id":1,"#,
        ] {
            parse(text.as_bytes()).unwrap_err();
        }
    }
}
