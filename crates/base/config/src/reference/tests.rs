//! The reference against the parser.

use super::*;
use crate::Config;
use std::collections::BTreeSet;
use std::path::Path;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("/etc/p4shield/p4shield.toml"), text).map_err(|e| e.to_string())
}

/// Returns a valid file whose `table` has this line, for the first attachment of `key`.
fn file(table: &Table, key: &Key, line: &str) -> String {
    let attachment = key.attachments[0];
    let line = if key.name == "tee" { &format!("compartment = \"vm\"\n{line}") } else { line };
    let is_of_machines = table.header == "[topology]"
        && ["compartment", "image", "nic_switch", "outside_vlan"].contains(&key.name);
    let is_image = is_of_machines && key.name == "image";
    let line = if is_image { &format!("compartment = \"vm\"\n{line}") } else { line };
    let line = match (key.name, line.contains("sriov")) {
        ("outside_vlan", _) => &format!("nic_switch = \"sriov\"\nfirst_vlan = 4094\n{line}"),
        ("nic_switch", true) => &format!("{line}\noutside_vlan = 0"),
        _ => line,
    };
    let is_handshake = line.contains("\"handshake\"");
    let rest = "handshake_page = \"h\"\ninfo_page = \"i\"\nagent_key = \"any\"";
    let line = if is_handshake { &format!("{line}\n{rest}") } else { line };
    let at = |header: &str| if table.header == header { line } else { "" };
    // The value of `attachment` itself decides.
    let top = if key.name == "attachment" {
        String::new()
    } else if line == "placement = \"inline\"" {
        "attachment = \"dpdk\"\n".to_owned()
    } else {
        format!("attachment = \"{}\"\n", attachment.name())
    };
    let evidence = if is_handshake { "evidence = \"sample\"\n" } else { "" };
    let tenant = format!("[[tenant]]\nname = \"alice\"\n{evidence}");
    let is_tenants = key.name == "key_file" && table.header == "[[tenant]]";
    let key_file = if is_tenants { "" } else { "key_file = \"a.key\"\n" };
    let vm = "[[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.2\"]\n";
    let is_rate = key.name == "packet_rate";
    let top = if is_rate || is_of_machines { format!("level = \"2\"\n{top}") } else { top };
    let is_topology = table.header == "[topology]" || key.name == "level" || is_rate;
    let topology = "[topology]\nuplink = \"u\"\ngateway_mac = \"02:00:00:00:00:fe\"\n";
    let topology = if is_topology { format!("{topology}{}\n", at("[topology]")) } else { String::new() };
    let port = if is_topology { "interface = \"v\"\nmac = \"02:00:00:00:00:01\"\n" } else { "" };
    let mut text = format!(
        "{top}{}\n[daemon]\n{}\n[machine]\n{}\n{topology}{tenant}{key_file}{}\n{vm}{port}{}\n",
        at(""),
        at("[daemon]"),
        at("[machine]"),
        at("[[tenant]]"),
        at("[[tenant.vm]]")
    );
    text += &match table.header {
        "[[wire]]" => format!(
            "[[wire]]\nvm_interface = \"a\"\nswitch_interface = \"b\"\ntenant = \"alice\"\nvm = \
             \"web\"\n{line}\n"
        ),
        "[[port]]" if key.name == "role" => format!("[[port]]\nname = \"p\"\n{line}\n"),
        "[[port]]" => format!("[[port]]\nname = \"p\"\ntenant = \"alice\"\nvm = \"web\"\n{line}\n"),
        "[[tunnel]]" if key.name == "type" => format!("[[tunnel]]\n{line}\n"),
        "[[tunnel]]" => format!("[[tunnel]]\ntype = \"geneve\"\n{line}\n"),
        _ => String::new(),
    };
    text
}

fn all_keys() -> impl Iterator<Item = (&'static Table, &'static Key)> {
    TABLES.iter().flat_map(|t| t.keys.iter().map(move |k| (t, k)))
}

#[test]
fn the_reference_lists_exactly_the_accepted_keys() {
    for table in TABLES {
        let parent = if table.header.contains("tenant.") { "[[tenant]]\nname = \"a\"\n" } else { "" };
        // The refusal of an unknown key lists the known ones between backticks.
        let error = parse(&format!("{parent}{}\nunknown_key = 1", table.header)).unwrap_err();
        assert!(error.contains("unknown field `unknown_key`"), "{error}");
        let accepted: BTreeSet<_> = error.split('`').skip(3).step_by(2).collect();
        let tables = ["daemon", "machine", "topology", "tenant", "wire", "port", "tunnel", "vm"];
        let is_table = |k: &&str| match table.header {
            "" => tables.contains(k),
            "[[tenant]]" => ["vm", "controllers"].contains(k),
            _ => false,
        };
        let accepted: BTreeSet<_> = accepted.into_iter().filter(|k| !is_table(k)).collect();
        let listed: BTreeSet<_> = table.keys.iter().map(|k| k.name).collect();
        assert_eq!(accepted, listed, "{}", table.header);
        assert_eq!(listed.len(), table.keys.len(), "{}: a key is listed twice", table.header);
    }
}

#[test]
fn the_references_defaults_are_those_of_the_parser() {
    for (table, key) in all_keys() {
        let Value(value) = key.default else { continue };
        let without = parse(&file(table, key, "")).unwrap();
        let with = parse(&file(table, key, &format!("{} = {value}", key.name)));
        let with = with.unwrap_or_else(|e| panic!("{} {}: {e}", table.header, key.name));
        assert_eq!(with, without, "{} {}", table.header, key.name);
    }
}

#[test]
fn the_references_limits_are_those_of_the_parser() {
    for (table, key) in all_keys() {
        let result = |value: &str| parse(&file(table, key, &format!("{} = {value}", key.name)));
        match key.allowed {
            Range(least, most) => {
                for n in [least, most] {
                    result(&n.to_string()).unwrap_or_else(|e| panic!("{} {n}: {e}", key.name));
                }
                for n in least.checked_sub(1).into_iter().chain([most + 1]) {
                    assert!(result(&n.to_string()).is_err(), "{} {n}", key.name);
                }
            }
            Words(words) if key.kind == "string" => {
                for word in words {
                    result(&format!("{word:?}")).unwrap_or_else(|e| panic!("{} {word}: {e}", key.name));
                }
                assert!(result("\"other\"").is_err(), "{}", key.name);
            }
            _ => {}
        }
    }
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/configuration.md");
    let generated = page();
    if std::env::var_os("P4SHIELD_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == generated,
        "docs/reference/configuration.md differs from crates/base/config/src/reference.rs; run \
         `P4SHIELD_BLESS=1 cargo test -p p4shield-config reference`"
    );
}
