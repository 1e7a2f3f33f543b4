//! P4 VMs before tenants' switches: each level, switch, compartment and attachment is accepted, or refused
//! with its reason, as the how-to guide's table says. `p4shield`'s test `topology` runs what is accepted.

use super::tests::{TOPOLOGY, parse};

const GUIDE: &str = include_str!("../../../../../docs/how-to/tenant-switches.md");
const LEVELS: [&str; 4] = ["baseline", "1", "2", "3"];

/// Returns a configuration in which a program judges a VM's packets before its tenant's switch.
fn configuration(level: &str, keys: &str, attachment: &str, compartment: &str) -> String {
    let text = TOPOLOGY.replacen("\"2\"", &format!("\"{level}\"\nattachment = \"{attachment}\""), 1);
    let text = text.replacen("[topology]\n", &format!("[topology]\n{keys}"), 1);
    let memory = if compartment == "vm" { "memory = \"256MiB\"\n" } else { "" };
    let alice = format!("name = \"alice\"\ncompartment = \"{compartment}\"\n{memory}");
    let text = text.replacen("name = \"alice\"\n", &alice, 1);
    text.replacen("name = \"web\"\n", "name = \"web\"\ningress = [\"a.o\"]\n", 1)
}

/// Returns the cells of a row of the guide's table, after its name.
fn row(name: &str) -> Vec<&'static str> {
    let begin = format!("| {name} |");
    let row = GUIDE.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_else(|| panic!("{name}"));
    row.trim_end_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn each_cell_of_the_guides_table_is_as_it_says() {
    let ovs = "switch = \"ovs\"\n";
    let p4 = "switch = \"p4\"\n";
    let machine = "compartment = \"vm\"\n";
    let card = "nic_switch = \"sriov\"\noutside_vlan = 9\n";
    for (name, keys, attachment) in [
        ("Open vSwitch in a process", ovs.to_owned(), "wire"),
        ("Open vSwitch in a virtual machine", format!("{ovs}{machine}"), "wire"),
        ("P4 switch in a process", p4.to_owned(), "wire"),
        ("P4 switch in a virtual machine", format!("{p4}{machine}"), "wire"),
        ("any switch, `nic_switch = \"sriov\"`", card.to_owned(), "wire"),
        ("any switch, `attachment = \"dpdk\"`", ovs.to_owned(), "dpdk"),
        ("any switch, `attachment = \"xsk\"`", p4.to_owned(), "xsk"),
    ] {
        let cells = row(name);
        assert_eq!(cells.len(), LEVELS.len(), "{name}: {cells:?}");
        for (level, cell) in LEVELS.iter().zip(cells) {
            for compartment in ["process", "vm"] {
                let text = configuration(level, &keys, attachment, compartment);
                match (cell, parse(&text)) {
                    ("works", Ok(config)) => assert_eq!(config.wires.len(), 1),
                    ("works", Err(error)) => panic!("{name}, {level}: {error}\n{text}"),
                    (_, Ok(_)) => panic!("{name}, {level}, {compartment}: accepted"),
                    (reason, Err(error)) => {
                        let reason = reason.strip_prefix("refused: ").unwrap();
                        assert!(error.contains(reason), "{name}, {level}: {error}");
                    }
                }
            }
        }
    }
}
