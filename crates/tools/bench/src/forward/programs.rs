//! The measured programs, the entries of their tables, and the packets.

use anyhow::Context;
use p4shield_bpf::Program;
use p4shield_bpf::maps::UpdateFlag;
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::model::TableFacts;

use super::PACKET_BYTES;

/// Different packets, as many as do not fit a first-level cache.
const PACKETS: u32 = 4096;
/// Prefixes of the router, and rules of its access list.
const ROUTES: u32 = 10_000;
const RULES: u32 = 1_000;

/// A program that is measured.
pub(super) struct Case {
    pub(super) program: &'static str,
    pub(super) source: &'static str,
    pub(super) entries: fn() -> Vec<Entry>,
    /// Copies that leave of each packet.
    pub(super) copies: u32,
}

/// The program of TEE Time at P4.
pub(super) const TEE: Case = Case {
    program: "XOR, add, XOR; one exact table",
    source: include_str!("tee.p4"),
    entries: tee_entries,
    copies: 1,
};

/// A router, whose packets pass a long access list.
pub(super) const ROUTER: Case = Case {
    program: "access list, longest prefix",
    source: include_str!("router.p4"),
    entries: router_entries,
    copies: 1,
};

/// A divided program: ingress runs once, and egress once for each copy.
pub(super) const MULTICAST: Case = Case {
    program: "two copies of each packet",
    source: include_str!("multicast.p4"),
    entries: Vec::new,
    copies: 2,
};

/// An entry: its table, keys, priority, action and parameters.
pub(super) struct Entry {
    table: &'static str,
    keys: Vec<String>,
    priority: Option<u32>,
    action: &'static str,
    params: Vec<String>,
}

fn tee_entries() -> Vec<Entry> {
    let port = |from: u32, to: u32| Entry {
        table: "by_port",
        keys: vec![from.to_string()],
        priority: None,
        action: "forward",
        params: vec![to.to_string()],
    };
    vec![port(0, 1), port(1, 0)]
}

/// The network of route number `n`, one of [`ROUTES`].
const fn network(n: u32) -> [u8; 3] {
    [10, (n / 250) as u8, (n % 250) as u8]
}

fn router_entries() -> Vec<Entry> {
    let routes = (0..ROUTES).map(|n| {
        let [a, b, c] = network(n);
        Entry {
            table: "routes",
            keys: vec![format!("{a}.{b}.{c}.0/24")],
            priority: None,
            action: "forward",
            params: vec![format!("02:00:00:00:{b:02x}:{c:02x}"), (n % 2).to_string()],
        }
    });
    // Rules that no packet matches, with masks of four kinds: each packet passes them all.
    let rules = (0..RULES).map(|n| {
        let source = [format!("172.16.{}.0/24", n % 250), format!("192.168.{}.{}", n / 250, n % 250)];
        let port = [(n + 1).to_string(), "_".to_owned()];
        Entry {
            table: "acl",
            keys: vec![
                source[n as usize % 2].clone(),
                "_".into(),
                "6".into(),
                port[n as usize / 2 % 2].clone(),
            ],
            priority: Some(n + 1),
            action: "drop",
            params: Vec::new(),
        }
    });
    routes.chain(rules).collect()
}

/// Returns packets for pseudo-random destinations among the routes.
pub(super) fn packets() -> Vec<[u8; PACKET_BYTES]> {
    let mut state = 1_u32;
    let mut packet = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut bytes = [0; PACKET_BYTES];
        bytes[..15].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
        (bytes[22], bytes[23]) = (64, 17);
        bytes[26..30].copy_from_slice(&[100, 64, (state >> 24) as u8, 1]);
        bytes[30..33].copy_from_slice(&network((state >> 8) % ROUTES));
        bytes
    };
    (0..PACKETS).map(&mut packet).collect()
}

/// Writes an entry.
///
/// # Errors
/// The program has no such table, or the entry does not fit it.
pub(super) fn install(tables: &[TableFacts], program: &mut Program, entry: &Entry) -> anyhow::Result<()> {
    let table = tables.iter().find(|t| t.name.ends_with(entry.table)).context("the program has the table")?;
    let unnamed = |values: &[String]| {
        values.iter().map(|value| Named { name: None, value: value.clone() }).collect::<Vec<_>>()
    };
    let key = table.key_of(&MatchText { keys: unnamed(&entry.keys), priority: entry.priority })?;
    let action = ActionText { name: entry.action.to_owned(), params: unnamed(&entry.params) };
    let value = table.value_of(&action, false)?;
    let map =
        program.maps_mut().and_then(|m| m.get_mut(table.map.as_deref()?)).context("a table has a map")?;
    Ok(map.update(&key, &value, UpdateFlag::NoExist)?)
}
