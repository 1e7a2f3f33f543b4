//! What differs between a running configuration and a new one, in the words of the file.

use super::Config;
use std::collections::BTreeSet;
use std::fmt;
use toml::{Table, Value};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table: `tenant alice, vm web`; empty for the keys at the top.
    pub place: String,
    /// The key; `None` if the whole table was added or removed.
    pub key: Option<String>,
    /// The value that was written before; `None`: none, or a table that was added.
    pub before: Option<String>,
    /// The value that is written now; `None`: none, or a table that was removed.
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key, before, after } = self;
        let Some(key) = key else {
            return write!(f, "{} {place}", if after.is_some() { '+' } else { '-' });
        };
        let of = if place.is_empty() { String::new() } else { format!("{place}: ") };
        match (before, after) {
            (Some(before), Some(after)) => write!(f, "~ {of}{key} = {before} -> {after}"),
            (None, after) => write!(f, "+ {of}{key} = {}", after.as_deref().unwrap_or_default()),
            (Some(before), None) => write!(f, "- {of}{key} = {before}"),
        }
    }
}

impl Config {
    /// Returns what `new` changes, in the words of the two files. Empty if they mean the same, however they
    /// are written.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self != new {
            tables("", &self.source.document(), &new.source.document(), &mut changes);
        }
        changes
    }

    /// Returns the keys that `new` changes and a running daemon cannot, each with the reason.
    #[must_use]
    pub fn changes_for_a_restart(&self, new: &Self) -> Vec<String> {
        let (old, daemon) = (&self.daemon, &new.daemon);
        let sockets = "clients and switches are connected to the old one";
        let fixed = [
            ("attachment", self.attachment != new.attachment, "it decides what the daemon starts"),
            ("machine", self.machine != new.machine, "running virtual machines were started with it"),
            ("placement", self.placement != new.placement, "it decides where all programs run"),
            ("daemon.socket", old.socket != daemon.socket, sockets),
            ("daemon.attach_socket", old.attach_socket != daemon.attach_socket, sockets),
            ("daemon.state", old.state != daemon.state, "it holds the epochs of logs that are being written"),
            ("daemon.first_uid", old.first_uid != daemon.first_uid, "running P4 VMs have these user IDs"),
            ("daemon.guard", old.guard != daemon.guard, "it is set when an interface is attached"),
        ];
        let changed = fixed.into_iter().filter(|(_, differs, _)| *differs);
        changed.map(|(key, _, reason)| format!("{key}: {reason}")).collect()
    }
}

/// Compares two tables key by key.
fn tables(place: &str, old: &Table, new: &Table, changes: &mut Vec<Change>) {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys {
        match (old.get(key), new.get(key)) {
            (before, after) if is_tables(before) || is_tables(after) => {
                lists(place, key, before, after, changes);
            }
            (before, after) if is_table(before) || is_table(after) => {
                let place = if place.is_empty() { key.clone() } else { format!("{place}, {key}") };
                let none = Table::new();
                let before = before.and_then(Value::as_table).unwrap_or(&none);
                tables(&place, before, after.and_then(Value::as_table).unwrap_or(&none), changes);
            }
            (before, after) if before != after => {
                let (before, after) = (before.map(ToString::to_string), after.map(ToString::to_string));
                changes.push(Change { place: place.to_owned(), key: Some(key.clone()), before, after });
            }
            _ => {}
        }
    }
}

/// Compares two lists of tables, whose entries are known by a name.
fn lists(place: &str, key: &str, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<Change>) {
    let (old, new) = (entries(key, old), entries(key, new));
    let inside = if place.is_empty() { String::new() } else { format!("{place}, ") };
    for (name, before) in &old {
        let place = format!("{inside}{key} {name}");
        match new.iter().find(|(n, _)| n == name) {
            Some((_, after)) => tables(&place, before, after, changes),
            None => {
                let before = Some(before.to_string());
                changes.push(Change { place, key: None, before, after: None });
            }
        }
    }
    for (name, after) in new.iter().filter(|(name, _)| !old.iter().any(|(n, _)| n == name)) {
        let place = format!("{inside}{key} {name}");
        changes.push(Change { place, key: None, before: None, after: Some(after.to_string()) });
    }
}

fn is_table(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_table)
}

fn is_tables(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::Array(list)) if list.first().is_some_and(Value::is_table))
}

/// Returns the tables of a list with their names.
fn entries<'v>(key: &str, list: Option<&'v Value>) -> Vec<(String, &'v Table)> {
    let list = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let named = |table: &'v Table| {
        let text = |key| table.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = match key {
            "wire" => text("vm_interface").to_owned(),
            "tunnel" => table.to_string().replace('\n', " ").trim().to_owned(),
            _ => text("name").to_owned(),
        };
        (name, table)
    };
    list.iter().filter_map(Value::as_table).map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const BEFORE: &str = r#"
attachment = "dpdk"
[daemon]
metrics = "127.0.0.1:9464"
[[tenant]]
name = "alice"
deadline = "20ms"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
[[tenant]]
name = "bob"
[[tenant.vm]]
name = "x"
addresses = ["10.0.0.3"]
[[port]]
name = "dpdk0"
role = "uplink"
[[tunnel]]
type = "vxlan"
"#;

    fn parse(text: &str) -> Config {
        Config::parse(Path::new("x.toml"), text).unwrap()
    }

    fn shown(before: &str, after: &str) -> Vec<String> {
        parse(before).changes(&parse(after)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changes_are_in_the_words_of_the_file() {
        let after = r#"
attachment = "dpdk"
[[tenant]]
name = "carol"
[[tenant.vm]]
name = "x"
addresses = ["10.0.0.3"]
[[tenant]]
name = "alice"
deadline = "50ms"
fail = "pass"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1", "10.0.0.9"]
[[port]]
name = "dpdk0"
tenant = "alice"
vm = "web"
[[tunnel]]
type = "geneve"
"#;
        let expected = [
            "- daemon: metrics = \"127.0.0.1:9464\"",
            "+ port dpdk0: tenant = \"alice\"",
            "- port dpdk0: role = \"uplink\"",
            "~ tenant alice: deadline = \"20ms\" -> \"50ms\"",
            "~ tenant alice, vm web: addresses = [\"10.0.0.1\"] -> [\"10.0.0.1\", \"10.0.0.9\"]",
            "+ tenant alice: fail = \"pass\"",
            "- tenant alice, vm db",
            "- tenant bob",
            "+ tenant carol",
            "- tunnel type = \"vxlan\"",
            "+ tunnel type = \"geneve\"",
            "+ port dpdk0: vm = \"web\"",
        ];
        let mut shown = shown(BEFORE, after);
        shown.sort();
        let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        expected.sort();
        assert_eq!(shown, expected);
    }

    #[test]
    fn another_order_or_a_written_default_is_no_change() {
        let text = BEFORE.replace("deadline = \"20ms\"", "# a comment\ndeadline = '20ms'\nfail = \"drop\"");
        assert_eq!(shown(BEFORE, &text), [""; 0]);
    }

    #[test]
    fn another_topology_needs_no_restart_of_the_daemon() {
        let topology = "level = \"1\"\n[topology]\nuplink = \"eth0\"\ngateway_mac = \"02:00:00:00:00:fe\"\n\
             [[tenant]]\nname = \"a\"\n[[tenant.vm]]\nname = \"x\"\naddresses = [\"10.0.0.1\"]\n\
             interface = \"tap0\"\nmac = \"02:00:00:00:00:01\"\n";
        let after = topology.replace("\"1\"", "\"2\"").replace("eth0", "eth1").replace("tap0", "tap1");
        let expected = [
            "~ level = \"1\" -> \"2\"",
            "~ tenant a, vm x: interface = \"tap0\" -> \"tap1\"",
            "~ topology: uplink = \"eth0\" -> \"eth1\"",
        ];
        assert_eq!(shown(topology, &after), expected);
        assert_eq!(parse(topology).changes_for_a_restart(&parse(&after)), [""; 0]);
    }

    #[test]
    fn what_needs_a_restart_is_named_with_the_reason() {
        let text = BEFORE.replace("[daemon]", "[daemon]\nsocket = \"/run/x\"\nfirst_uid = 70000");
        let reasons = parse(BEFORE).changes_for_a_restart(&parse(&text));
        let keys: Vec<_> = reasons.iter().map(|r| r.split(':').next().unwrap()).collect();
        assert_eq!(keys, ["daemon.socket", "daemon.first_uid"]);
        let same = parse(BEFORE).changes_for_a_restart(&parse(&BEFORE.replace("20ms", "30ms")));
        assert_eq!(same, [""; 0]);
    }
}
