//! The JSON of the P4 tutorials' controller: entries of tables and multicast groups.
//!
//! ```json
//! { "table_entries": [
//!     { "table": "MyIngress.ipv4_lpm", "match": { "hdr.ipv4.dstAddr": ["10.0.1.1", 32] },
//!       "action_name": "MyIngress.ipv4_forward",
//!       "action_params": { "dstAddr": "08:00:00:00:01:11", "port": 1 } },
//!     { "table": "MyIngress.ipv4_lpm", "default_action": true, "action_name": "MyIngress.drop" } ],
//!   "multicast_group_entries": [
//!     { "multicast_group_id": 1, "replicas": [ { "egress_port": 2, "instance": 1 } ] } ] }
//! ```
//!
//! A pair is a prefix, a value with its mask, or a range, as the key's match kind has it. Priorities are
//! P4Runtime's: the greatest comes first.

use crate::{FileError, Located, Problem};
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::model::TableFacts;
use p4shield_tables::write::{Entry, Group, GroupCopy, Write};
use p4shield_tables::{Control, names};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'t> {
    #[serde(default, borrow)]
    table_entries: Vec<&'t RawValue>,
    #[serde(default, borrow)]
    multicast_group_entries: Vec<&'t RawValue>,
    #[serde(default, borrow)]
    clone_session_entries: Vec<&'t RawValue>,
    // They name what the tutorials' controller loads, and the switch runs its program already.
    #[serde(default, rename = "target")]
    _target: IgnoredAny,
    #[serde(default, rename = "p4info")]
    _p4info: IgnoredAny,
    #[serde(default, rename = "bmv2_json")]
    _bmv2_json: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableEntry {
    table: String,
    #[serde(default)]
    default_action: bool,
    #[serde(default, rename = "match")]
    matches: BTreeMap<String, Value>,
    #[serde(default)]
    priority: Option<u32>,
    action_name: String,
    #[serde(default)]
    action_params: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    multicast_group_id: u16,
    replicas: Vec<Replica>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replica {
    egress_port: u16,
    #[serde(default)]
    instance: u16,
}

pub(crate) fn read(control: &Control, text: &str) -> Result<Vec<Located>, FileError> {
    // A structure may also be written as an array, by place, which is no form of these files.
    if !text.trim_start().starts_with('{') {
        return Err(Problem::Json("the file has to be a JSON object, { ... }".to_owned()).at(1));
    }
    let file: File<'_> =
        serde_json::from_str(text).map_err(|e| Problem::Json(reason(&e)).at(e.line().max(1)))?;
    if let Some(session) = file.clone_session_entries.first() {
        let why = "programs cannot clone packets yet";
        let problem = Problem::Unsupported { command: "clone_session_entries".to_owned(), why };
        return Err(problem.at(line_of(text, session)));
    }
    let mut lines = Lines { text, at: 0, line: 1 };
    let mut all = Vec::new();
    let entries = file.table_entries.iter().map(|raw| (raw, true));
    let groups = file.multicast_group_entries.iter().map(|raw| (raw, false));
    for (raw, is_entry) in entries.chain(groups) {
        let line = lines.of(raw);
        let write = if is_entry { table_entry(control, raw.get()) } else { group(raw.get()) };
        all.push(Located { line, write: write.map_err(|(within, problem)| problem.at(line + within))? });
    }
    Ok(all)
}

/// A problem, and its line from the entry's first one.
type Wrong = (usize, Problem);

fn parsed<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Wrong> {
    serde_json::from_str(text).map_err(|e| (e.line().saturating_sub(1), Problem::Json(reason(&e))))
}

/// The reason of an error without its place, which is within the entry.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(reason, _)| reason.to_owned())
}

fn table_entry(control: &Control, text: &str) -> Result<Write, Wrong> {
    let entry: TableEntry = parsed(text)?;
    let first = |problem| (0, problem);
    let table = control.table(&entry.table).map_err(|e| first(e.into()))?;
    let params = entry.action_params.iter().map(|(name, value)| Ok(named(name, scalar(name, value)?)));
    let params = params.collect::<Result<_, _>>().map_err(first)?;
    let action = ActionText { name: entry.action_name, params };
    let name = table.name.clone();
    if !entry.default_action {
        let keys = entry.matches.iter().map(|(key, value)| key_match(table, key, value));
        let keys = keys.collect::<Result<_, _>>().map_err(first)?;
        return Ok(Write::Add(Entry {
            table: name,
            matches: MatchText { keys, priority: entry.priority },
            action,
        }));
    }
    if !entry.matches.is_empty() {
        return Err(first(Problem::Json(
            "a default action has no `match`: it is for every other packet".into(),
        )));
    }
    Ok(Write::Default { table: name, action })
}

fn key_match(table: &TableFacts, name: &str, value: &Value) -> Result<Named, Problem> {
    let parts = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    if let [one] = parts {
        return Ok(named(name, scalar(name, one)?));
    }
    let at = names::find("key", name, false, table.keys.iter().map(|k| k.name.as_str()))?;
    let key = &table.keys[at];
    let between = match key.kind {
        "lpm" => "/",
        "ternary" => "&&&",
        "range" => "..",
        kind => return Err(Problem::Json(format!("{} has one value: its match kind is {kind}", key.name))),
    };
    let [first, second] = parts else {
        return Err(Problem::Json(format!("{} has a value or two, not {}", key.name, parts.len())));
    };
    Ok(named(&key.name, format!("{}{between}{}", scalar(name, first)?, scalar(name, second)?)))
}

fn named(name: &str, value: String) -> Named {
    Named { name: Some(name.to_owned()), value }
}

fn scalar(name: &str, value: &Value) -> Result<String, Problem> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(bit) => Ok(bit.to_string()),
        Value::Number(number) if number.is_u64() => Ok(number.to_string()),
        Value::Number(number) => Err(Problem::Json(format!(
            "{number} is no value of {name}: write a whole number from 0, above 64 bits as a string such as \
             \"0xff\""
        ))),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(Problem::Json(format!("the value of {name} has to be a number or a string")))
        }
    }
}

fn group(text: &str) -> Result<Write, Wrong> {
    let entry: GroupEntry = parsed(text)?;
    let copies = entry.replicas.iter().map(|r| GroupCopy { port: r.egress_port, replica: r.instance });
    Ok(Write::SetGroup(Group { group: entry.multicast_group_id, copies: copies.collect() }))
}

/// Counts lines up to a part of the text. Parts that come in their order cost one pass.
struct Lines<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn of(&mut self, part: &RawValue) -> usize {
        // The part lies in the text: it is borrowed from there.
        let at = (part.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        if at < self.at {
            (self.at, self.line) = (0, 1);
        }
        let between = self.text.as_bytes().get(self.at..at).unwrap_or_default();
        self.line += between.iter().filter(|b| **b == b'\n').count();
        self.at = at;
        self.line
    }
}

fn line_of(text: &str, part: &RawValue) -> usize {
    Lines { text, at: 0, line: 1 }.of(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::program;

    const FILE: &str = r#"{
  "target": "bmv2",
  "p4info": "build/basic.p4.p4info.txtpb",
  "bmv2_json": "build/basic.json",
  "multicast_group_entries": [
    { "multicast_group_id": 1, "replicas": [ { "egress_port": 2, "instance": 7 }, { "egress_port": 3 } ] }
  ],
  "table_entries": [
    {
      "table": "ingress.routes",
      "default_action": true,
      "action_name": "ingress.drop",
      "action_params": { }
    },
    {
      "table": "ingress.routes",
      "match": { "hdr.ipv4.dst": ["10.0.1.1", 32] },
      "action_name": "ingress.forward",
      "action_params": { "next_hop": "08:00:00:00:01:11", "port": 1 }
    },
    { "table": "acl", "match": { "proto": [6, "0xff"], "dst_port": [80, 443] }, "priority": 3,
      "action_name": "drop" },
    { "table": "routes", "match": { "dst": ["10.0.2.2"] }, "action_name": "drop" }
  ]
}
"#;

    #[test]
    fn the_tutorials_files_are_read() {
        let written = read(&program(), FILE).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(written.iter().map(|w| w.line).collect::<Vec<_>>(), [9, 15, 21, 23, 6]);
        let Write::Default { table, action } = &written[0].write else { panic!("{written:?}") };
        assert_eq!((table.as_str(), action.name.as_str()), ("ingress.routes", "ingress.drop"));
        let Write::Add(route) = &written[1].write else { panic!("{written:?}") };
        assert_eq!(route.matches.keys, [named("hdr.ipv4.dst", "10.0.1.1/32".into())]);
        assert_eq!(route.action.params.len(), 2);
        let Write::Add(rule) = &written[2].write else { panic!("{written:?}") };
        assert_eq!(rule.matches.priority, Some(3));
        let values: Vec<_> = rule.matches.keys.iter().map(|k| k.value.as_str()).collect();
        assert_eq!(values, ["80..443", "6&&&0xff"]);
        let Write::Add(host) = &written[3].write else { panic!("{written:?}") };
        assert_eq!(host.matches.keys, [named("dst", "10.0.2.2".into())]);
        let copy = |port, replica| GroupCopy { port, replica };
        let group = Group { group: 1, copies: vec![copy(2, 7), copy(3, 0)] };
        assert_eq!(written[4].write, Write::SetGroup(group));
    }

    #[test]
    fn the_first_wrong_line_of_json_is_named() {
        let entry = |text: &str| format!("{{ \"table_entries\": [\n  {{\n    {text} }}\n] }}");
        for (text, line, part) in [
            ("{\n  \"tables\": []\n}".to_owned(), 2, "unknown field `tables`"),
            ("{\n".to_owned(), 2, "EOF"),
            ("[]".to_owned(), 1, "a JSON object"),
            (String::new(), 1, "a JSON object"),
            (entry("\"table\": \"routes\""), 3, "missing field `action_name`"),
            (entry("\"table\": \"nowhere\", \"action_name\": \"drop\""), 2, "unknown table `nowhere`"),
            (
                entry("\"table\": \"routes\", \"match\": {\"dst\": [1, 2, 3]}, \"action_name\": \"drop\""),
                2,
                "or two, not 3",
            ),
            (
                entry("\"table\": \"routes\", \"match\": {\"dst\": 1.5}, \"action_name\": \"drop\""),
                2,
                "1.5 is no value",
            ),
            (
                entry("\"table\": \"routes\", \"match\": {\"dst\": {}}, \"action_name\": \"drop\""),
                2,
                "a number or a string",
            ),
            (
                entry(
                    "\"table\": \"routes\", \"default_action\": true, \"match\": {\"dst\": 1}, \
                     \"action_name\": \"drop\"",
                ),
                2,
                "has no `match`",
            ),
            ("{ \"clone_session_entries\": [\n {} ] }".to_owned(), 2, "cannot clone"),
        ] {
            let error = read(&program(), &text).map(|w| format!("{w:?}")).unwrap_err();
            assert_eq!(error.line, line, "{error} in {text}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
