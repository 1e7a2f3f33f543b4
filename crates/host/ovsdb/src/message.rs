//! The messages of RFC 7047, as far as a reader of one database needs them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::tables::{Bridge, Interface, Port, Root};
use crate::value::Uuid;

/// The `id` of our one request, `monitor`.
pub(crate) const MONITOR: u64 = 1;
/// The `id` of our `echo`, sent when nothing was heard for long.
pub(crate) const PROBE: u64 = 2;

/// A message that came.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// The answer to [`MONITOR`]: everything there is.
    Everything(Box<Updates>),
    /// The answer to [`MONITOR`]: no.
    Refused(String),
    /// What has changed.
    Update(Box<Updates>),
    /// The server wants to know whether we live; to be answered with the same parameters and id.
    Echo { params: &'a RawValue, id: &'a RawValue },
    /// Nothing that we act upon.
    Other,
}

/// Changes of tables, by row.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Updates {
    #[serde(rename = "Open_vSwitch")]
    pub(crate) root: Rows<Root>,
    #[serde(rename = "Bridge")]
    pub(crate) bridges: Rows<Bridge>,
    #[serde(rename = "Port")]
    pub(crate) ports: Rows<Port>,
    #[serde(rename = "Interface")]
    pub(crate) interfaces: Rows<Interface>,
}

/// Rows by name as they are now; none for one that is gone.
#[derive(Debug)]
pub(crate) struct Rows<T>(pub(crate) Vec<(Uuid, Option<T>)>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A row before and after. Before is not read: after has every column (RFC 7047, section 4.1.6).
#[derive(Deserialize)]
struct Change<T> {
    new: Option<T>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rows<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Rows<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rows by uuid")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rows<T>, A::Error> {
                let mut rows = Vec::new();
                while let Some((uuid, Change { new })) = map.next_entry()? {
                    rows.push((uuid, new));
                }
                Ok(Rows(rows))
            }
        }
        from.deserialize_map(V(PhantomData))
    }
}

/// Any message of JSON-RPC 1.0; `null` reads as none.
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

/// Reads a message.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message<'_>, serde_json::Error> {
    let any: Any<'_> = serde_json::from_slice(bytes)?;
    match (any.method.as_deref(), any.params, any.id) {
        (Some("update"), Some(params), _) => {
            let (IgnoredAny, updates) = serde_json::from_str(params.get())?;
            Ok(Message::Update(updates))
        }
        (Some("echo"), Some(params), Some(id)) => Ok(Message::Echo { params, id }),
        (None, _, Some(id)) if id.get() == "1" => match (any.result, any.error) {
            (Some(result), None) => Ok(Message::Everything(serde_json::from_str(result.get())?)),
            (_, error) => Ok(Message::Refused(reason(error.map_or("without a reason", RawValue::get)))),
        },
        _ => Ok(Message::Other),
    }
}

/// The start of what the server says, fit for a log.
fn reason(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Asks for all that we want to know, and to be told when it changes.
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

/// Asks whether the server lives.
pub(crate) fn probe() -> Vec<u8> {
    format!(r#"{{"method":"echo","params":[],"id":{PROBE}}}"#).into_bytes()
}

/// Answers an `echo`.
pub(crate) fn echoed(params: &RawValue, id: &RawValue) -> Vec<u8> {
    format!(r#"{{"result":{},"error":null,"id":{}}}"#, params.get(), id.get()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_answered_with_the_same() {
        let ask = br#"{"id":["a", 7],"method":"echo","params":[ "x",{"y":[1.50]} ]}"#;
        let Ok(Message::Echo { params, id }) = parse(ask) else { panic!("no echo") };
        let answer = String::from_utf8(echoed(params, id)).unwrap();
        assert_eq!(answer, r#"{"result":[ "x",{"y":[1.50]} ],"error":null,"id":["a", 7]}"#);
    }

    #[test]
    fn a_refusal_comes_with_what_the_server_says() {
        let text = br#"{"id":1,"result":null,"error":{"error":"unknown database","details":"line\none"}}"#;
        let Ok(Message::Refused(why)) = parse(text) else { panic!("no refusal") };
        assert!(why.contains("unknown database"), "{why}");
        assert!(matches!(parse(br#"{"id":1}"#), Ok(Message::Refused(_))));
    }

    #[test]
    fn what_we_do_not_act_upon_is_let_be() {
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
    fn what_is_not_what_it_says_is_an_error() {
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
