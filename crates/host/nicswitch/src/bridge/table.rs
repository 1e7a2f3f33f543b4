//! The bridge's table of nftables: what is in it, and the commands that change it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use macaddr::MacAddr6;
use p4shield_topology::Port;
use serde_json::{Value, json};

use super::chain::{counter, destinations, incoming, outgoing};
use super::incoming::{self, MACS, RECEIVED};
use super::ways::{self, DELIVERED, Scene};
use crate::nft::Nft;
use crate::{NicError, PortCounters, Reason};

/// Before and after other rules of the same interfaces.
const FIRST: i32 = -500;
const LAST: i32 = 500;
/// Bytes of an Ethernet header, which the kernel leaves out of the counters of what it receives.
const ETHERNET: u64 = 14;
/// Reasons that no rule counts: a bridge drops what is too long by itself, and knows no interfaces that are
/// about to become ports, and no rule sees which checksums are still to be written.
const UNCOUNTED: [Reason; 3] = [Reason::TooLong, Reason::Unassigned, Reason::Checksum];

/// The rules that a port is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortRules<'a> {
    pub(super) port: &'a Port,
    /// Its name and the index of its interface. An interface that gets the name gets another label, and no
    /// rule of the old one.
    pub(super) label: String,
    /// By chain.
    chains: [(String, Vec<Value>); 3],
    /// A hash of them, in the comment of each rule. It tells whether the kernel has these rules.
    digest: u64,
}

impl<'a> PortRules<'a> {
    pub(super) fn of(port: &'a Port, index: u32, scene: Scene<'_>) -> Self {
        let label = label(&port.interface, index);
        let chains = [
            (destinations(&label), ways::destinations(&label, port, scene)),
            (incoming(&label), incoming::rules(&label, port)),
            (outgoing(&label), ways::outgoing(&label, port)),
        ];
        let mut hasher = DefaultHasher::new();
        for (_, rules) in &chains {
            rules.iter().map(Value::to_string).collect::<Vec<_>>().hash(&mut hasher);
        }
        Self { port, label, digest: hasher.finish(), chains }
    }

    fn comment(&self, number: usize) -> String {
        format!("{:016x}.{number}", self.digest)
    }
}

/// A chain in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chain {
    /// Hook, priority and policy.
    base: (String, i64, String),
    /// The comments of its rules.
    comments: Vec<String>,
}

/// The table in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    is_there: bool,
    chains: BTreeMap<String, Chain>,
    /// Packets and bytes.
    counters: BTreeMap<String, (u64, u64)>,
    macs: BTreeSet<String>,
    sets: BTreeSet<String>,
}

/// The name of a bridge's table.
fn name(bridge: &str) -> String {
    format!("p4shield-{bridge}")
}

/// The network device family, whose rules see each frame that an interface receives or sends.
fn object(bridge: &str, more: Value) -> Value {
    let mut object = json!({"family": "netdev", "table": name(bridge)});
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

impl Table {
    pub(super) fn read(nft: &Nft<'_>, bridge: &str) -> Result<Self, NicError> {
        let name = name(bridge);
        let mut table = Self::default();
        let is_it = |(kind, table): &(String, Value)| kind == "table" && text(table, "name") == name;
        if !nft.list(&["tables", "netdev"])?.iter().any(is_it) {
            return Ok(table);
        }
        for (kind, object) in nft.list(&["table", "netdev", &name])? {
            table.take(&kind, &object);
        }
        Ok(table)
    }

    pub(super) fn take(&mut self, kind: &str, object: &Value) {
        let own_name = text(object, "name");
        match kind {
            "table" => self.is_there = true,
            "chain" => {
                let priority = object.get("prio").and_then(Value::as_i64).unwrap_or(0);
                let base = (text(object, "hook"), priority, text(object, "policy"));
                self.chains.entry(own_name).or_default().base = base;
            }
            "rule" => {
                let chain = self.chains.entry(text(object, "chain")).or_default();
                chain.comments.push(text(object, "comment"));
            }
            "counter" => {
                let number = |key| object.get(key).and_then(Value::as_u64).unwrap_or(0);
                self.counters.insert(own_name, (number("packets"), number("bytes")));
            }
            "set" => {
                let elements = object.get("elem").and_then(Value::as_array).into_iter().flatten();
                if own_name == MACS {
                    self.macs = elements.filter_map(Value::as_str).map(str::to_owned).collect();
                }
                self.sets.insert(own_name);
            }
            _ => {}
        }
    }

    /// Returns the labels of ports that have a chain.
    pub(super) fn labels(&self) -> BTreeSet<&str> {
        self.chains.keys().filter_map(|chain| Some(chain.split_once('-')?.1)).collect()
    }

    /// Returns whether a port has exactly its rules.
    pub(super) fn has(&self, port: &PortRules<'_>) -> bool {
        let counters = counter_names().all(|name| self.counters.contains_key(&counter(&port.label, name)));
        let mut number = 0;
        counters
            && port.chains.iter().all(|(name, rules)| {
                let comments = (number..).map(|number| port.comment(number)).take(rules.len());
                let wanted = Chain { base: base(name), comments: comments.collect() };
                number += rules.len();
                self.chains.get(name) == Some(&wanted)
            })
    }

    /// Returns the commands that give ports their rules, and the set of addresses its elements.
    pub(super) fn set(
        &self,
        bridge: &str,
        ports: &[&PortRules<'_>],
        macs: &BTreeSet<MacAddr6>,
    ) -> Vec<Value> {
        let mut commands = Vec::new();
        let own = name(bridge);
        if !self.is_there {
            commands.push(json!({"add": {"table": {"family": "netdev", "name": own}}}));
        }
        if !self.sets.contains(MACS) {
            let set = object(bridge, json!({"name": MACS, "type": "ether_addr"}));
            commands.push(json!({"add": {"set": set}}));
        }
        let macs: BTreeSet<String> = macs.iter().map(|mac| mac.to_string().to_lowercase()).collect();
        let element = |elements: Vec<&String>| object(bridge, json!({"name": MACS, "elem": elements}));
        let (more, less): (Vec<_>, Vec<_>) =
            (macs.difference(&self.macs).collect(), self.macs.difference(&macs).collect());
        if !more.is_empty() {
            commands.push(json!({"add": {"element": element(more)}}));
        }
        if !less.is_empty() {
            commands.push(json!({"delete": {"element": element(less)}}));
        }
        for port in ports {
            self.set_port(bridge, port, &mut commands);
        }
        commands
    }

    fn set_port(&self, bridge: &str, port: &PortRules<'_>, commands: &mut Vec<Value>) {
        for name in counter_names().map(|name| counter(&port.label, name)) {
            if !self.counters.contains_key(&name) {
                commands.push(json!({"add": {"counter": object(bridge, json!({"name": name}))}}));
            }
        }
        for (name, _) in &port.chains {
            let chain = object(bridge, json!({"name": name}));
            match self.chains.get(name) {
                Some(found) if found.base == base(name) => commands.push(json!({"flush": {"chain": chain}})),
                found => {
                    if found.is_some() {
                        commands.push(json!({"flush": {"chain": chain}}));
                        commands.push(json!({"delete": {"chain": chain}}));
                    }
                    commands.push(json!({"add": {"chain": new_chain(bridge, name, &port.port.interface)}}));
                }
            }
        }
        let mut number = 0;
        for (name, rules) in &port.chains {
            for rule in rules {
                let comment = port.comment(number);
                let rule = object(bridge, json!({"chain": name, "expr": rule, "comment": comment}));
                commands.push(json!({"add": {"rule": rule}}));
                number += 1;
            }
        }
    }

    /// Returns the commands after which nothing passes from or to the ports of these labels.
    pub(super) fn close(&self, bridge: &str, labels: &BTreeSet<&str>) -> Vec<Value> {
        let chains = self.chains_of(labels);
        let flush = |chain: &String| json!({"flush": {"chain": object(bridge, json!({"name": chain}))}});
        chains.filter(|chain| !self.chains[*chain].comments.is_empty()).map(flush).collect()
    }

    /// Returns the commands that remove everything of these labels, after [`Self::close`].
    pub(super) fn remove(&self, bridge: &str, labels: &BTreeSet<&str>) -> Vec<Value> {
        let delete =
            |kind: &str, name: &String| json!({"delete": {kind: object(bridge, json!({"name": name}))}});
        let chains = self.chains_of(labels).map(|chain| delete("chain", chain));
        let is_its =
            |counter: &&String| counter.rsplit_once('.').is_some_and(|(label, _)| labels.contains(label));
        let counters = self.counters.keys().filter(is_its).map(|counter| delete("counter", counter));
        chains.chain(counters).collect()
    }

    fn chains_of(&self, labels: &BTreeSet<&str>) -> impl Iterator<Item = &String> {
        self.chains
            .keys()
            .filter(|chain| chain.split_once('-').is_some_and(|(_, label)| labels.contains(label)))
    }

    /// Returns the command that removes the table.
    pub(super) fn delete(&self, bridge: &str) -> Vec<Value> {
        let delete = json!({"delete": {"table": {"family": "netdev", "name": name(bridge)}}});
        if self.is_there { vec![delete] } else { Vec::new() }
    }
}

/// Returns the counters of each port that is there, by its label.
pub(super) fn counters(
    nft: &Nft<'_>,
    bridge: &str,
    is_there: impl Fn(&str) -> bool,
) -> Result<Vec<PortCounters>, NicError> {
    let mut table = Table::default();
    for (kind, object) in nft.list(&["counters", "netdev"])? {
        if text(&object, "table") == name(bridge) {
            table.take(&kind, &object);
        }
    }
    let labels: BTreeSet<&str> =
        table.counters.keys().filter_map(|name| Some(name.rsplit_once('.')?.0)).collect();
    let of = |label: &'_ str| {
        let number = |name: &str| table.counters.get(&counter(label, name)).copied().unwrap_or_default();
        let (received_packets, received_bytes) = number(RECEIVED);
        let (delivered_packets, delivered_bytes) = number(DELIVERED);
        PortCounters {
            interface: interface(label).to_owned(),
            received_packets,
            received_bytes: received_bytes + ETHERNET * received_packets,
            delivered_packets,
            delivered_bytes,
            unexplained_drops: 0,
            drops: Reason::ALL.map(|reason| number(reason.name()).0),
        }
    };
    Ok(labels.into_iter().filter(|label| is_there(label)).map(of).collect())
}

/// Returns the label of a port with this interface.
pub(super) fn label(interface: &str, index: u32) -> String {
    format!("{interface}-{index}")
}

/// Returns the interface that a label names.
pub(super) fn interface(label: &str) -> &str {
    label.rsplit_once('-').map_or(label, |(interface, _)| interface)
}

/// Returns the names of a port's counters.
fn counter_names() -> impl Iterator<Item = &'static str> {
    let counted = Reason::ALL.into_iter().filter(|reason| !UNCOUNTED.contains(reason));
    [RECEIVED, DELIVERED].into_iter().chain(counted.map(Reason::name))
}

/// Returns hook, priority and policy of a chain.
fn base(chain: &str) -> (String, i64, String) {
    let of = |hook: &str, priority: i32| (hook.to_owned(), i64::from(priority), "drop".to_owned());
    match chain.split_once('-') {
        Some(("in", _)) => of("ingress", FIRST),
        Some(("out", _)) => of("egress", LAST),
        _ => Default::default(),
    }
}

fn new_chain(bridge: &str, name: &str, interface: &str) -> Value {
    let (hook, priority, policy) = base(name);
    if hook.is_empty() {
        return object(bridge, json!({"name": name}));
    }
    let more = json!({"type": "filter", "hook": hook, "dev": interface, "prio": priority, "policy": policy});
    let mut chain = object(bridge, json!({"name": name}));
    if let (Some(chain), Value::Object(more)) = (chain.as_object_mut(), more) {
        chain.extend(more);
    }
    chain
}

fn text(object: &Value, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
