//! Numbers, cores and counts of plans.

use super::*;
use std::path::Path;

/// A tenant of one VM.
struct Declared<'t> {
    name: &'t str,
    zone: Option<&'t str>,
}

const fn tenant(name: &str) -> Declared<'_> {
    Declared { name, zone: None }
}

/// Parses a configuration of these tenants, whose VMs have addresses that follow from the names.
fn config(keys: &str, level: &str, tenants: &[Declared<'_>]) -> Config {
    let mut text = format!(
        "level = \"{level}\"\n[topology]\nuplink = \"eth0\"\ngateway_mac = \"02:00:00:00:00:fe\"\n{keys}\n"
    );
    for Declared { name, zone } in tenants {
        let number = name.as_bytes()[0];
        let zone = zone.map_or_else(String::new, |zone| format!("zone = \"{zone}\"\n"));
        text += &format!(
            "[[tenant]]\nname = \"{name}\"\n{zone}[[tenant.vm]]\nname = \"web\"\ninterface = \"tap-{name}\"\n\
             mac = \"02:00:00:00:00:{number:02x}\"\naddresses = [\"10.0.0.{number}\"]\n"
        );
    }
    Config::parse(Path::new("x.toml"), &text).unwrap()
}

fn first(config: &Config) -> Plan {
    plan(config, &Numbers::default(), 8).unwrap()
}

fn tenants(names: &[&'static str]) -> Vec<Declared<'static>> {
    names.iter().map(|name| tenant(name)).collect()
}

/// Returns what a tenant's neighbours would notice if it changed: everything of it, without its compartment.
fn of<'p>(plan: &'p Plan, name: &str) -> &'p Tenant {
    plan.compartments.iter().flat_map(|c| &c.tenants).find(|t| t.name == name).unwrap()
}

#[test]
fn virtual_functions_are_those_of_the_paper() {
    // MTS, section 3.2, resource allocation.
    let four = ["a", "b", "c", "d"];
    for (level, names, vfs) in [("1", &four[..1], 3), ("1", &four, 9), ("2", &four[..2], 6), ("2", &four, 12)]
    {
        assert_eq!(first(&config("", level, &tenants(names))).vfs(), vfs, "level {level}, {names:?}");
    }
    assert_eq!(first(&config("", "baseline", &tenants(&four))).vfs(), 0);
}

#[test]
fn ports_are_as_many_as_virtual_functions_and_the_uplink() {
    for level in ["1", "2"] {
        let plan = first(&config("", level, &tenants(&["a", "b", "c"])));
        assert_eq!(plan.ports().len(), plan.vfs() + 1);
    }
    assert_eq!(first(&config("", "baseline", &tenants(&["a"]))).ports(), []);
}

#[test]
fn a_change_of_one_tenant_changes_nothing_of_another() {
    let before = first(&config("cores = \"isolated\"", "2", &tenants(&["a", "b", "c"])));
    let after = config("cores = \"isolated\"", "2", &tenants(&["d", "c", "b"]));
    let after = plan(&after, &before.numbers(), 8).unwrap();
    for name in ["b", "c"] {
        assert_eq!(of(&before, name), of(&after, name));
        let compartment = |plan: &Plan| plan.compartments.iter().find(|c| c.name == name).cloned();
        assert_eq!(compartment(&before), compartment(&after));
    }
    let changes: Vec<_> = before.diff(&after).changes.iter().map(ToString::to_string).collect();
    let expected =
        ["- compartment a", "+ compartment d", "- tenant a", "+ tenant d", "- VM a/web", "+ VM d/web"];
    assert_eq!(changes, expected);
}

#[test]
fn the_smallest_free_number_goes_to_the_next_name() {
    let before = first(&config("", "2", &tenants(&["a", "b", "c"])));
    let gone = plan(&config("", "2", &tenants(&["c"])), &before.numbers(), 8).unwrap();
    let back = plan(&config("", "2", &tenants(&["e", "d", "c"])), &gone.numbers(), 8).unwrap();
    let numbers = ["c", "d", "e"].map(|name| of(&back, name).number);
    assert_eq!(numbers, [3, 2, 1]);
    assert_eq!(of(&back, "e").gateway.as_ref().unwrap().outer, "p4s1gw1");
}

#[test]
fn damaged_numbers_of_an_older_plan_are_not_kept() {
    let config = config("cores = \"isolated\"", "2", &tenants(&["a", "b", "c", "d"]));
    let numbers = |numbers: [u16; 4]| {
        ["a", "b", "c", "d"].map(ToOwned::to_owned).into_iter().zip(numbers).collect::<BTreeMap<_, _>>()
    };
    let damaged = Numbers {
        functions: BTreeMap::new(),
        compartments: numbers([0, 7, 7, u16::MAX]),
        tenants: numbers([2, 2, 2, 2]),
        vms: BTreeMap::from([("a/web".to_owned(), 0)]),
        cores: BTreeMap::from([("a".to_owned(), 99), ("b".to_owned(), 6), ("c".to_owned(), 6)]),
    };
    let plan = plan(&config, &damaged, 8).unwrap().numbers();
    assert_eq!(plan.compartments, numbers([1, 7, 2, 3]));
    assert_eq!(plan.tenants, numbers([2, 1, 3, 4]));
    assert_eq!(plan.cores.values().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn shared_cores_are_one_and_isolated_ones_differ() {
    let cores = |keys: &str, cores: u32| {
        let plan = plan(&config(keys, "2", &tenants(&["a", "b", "c"])), &Numbers::default(), cores)?;
        Ok(plan.compartments.iter().map(|c| c.core).collect::<Vec<_>>())
    };
    assert_eq!(cores("", 4), Ok(vec![3, 3, 3]));
    assert_eq!(cores("cores = \"isolated\"", 4), Ok(vec![3, 2, 1]));
    let too_few = PlanError::Cores { needed: 3, available: 2 };
    let text = too_few.to_string();
    assert!(text.contains("needs 3 cores") && text.contains("has 2"), "{text}");
    assert_eq!(cores("cores = \"isolated\"", 2), Err(too_few));
}

#[test]
fn isolated_switches_leave_p4_vms_their_cores() {
    let mut config = config("cores = \"isolated\"", "2", &tenants(&["a", "b"]));
    let before = first(&config);
    assert_eq!(before.compartments.iter().map(|c| c.core).collect::<Vec<_>>(), [7, 6]);
    config.tenants[1].cpu = Some(7);
    let cores = |cores: u32| {
        let plan = plan(&config, &before.numbers(), cores).unwrap();
        plan.compartments.iter().map(|c| c.core).collect::<Vec<_>>()
    };
    assert_eq!(cores(8), [5, 6], "one that was given before goes, too");
    config.tenants[0].cpu = Some(0);
    let few = plan(&config, &Numbers::default(), 2).unwrap_err();
    assert_eq!(few, PlanError::Cores { needed: 2, available: 1 });
}

#[test]
fn tenants_of_a_zone_share_a_switch_at_level_2_only() {
    let zoned = [
        Declared { zone: Some("red"), ..tenant("a") },
        tenant("b"),
        Declared { zone: Some("red"), ..tenant("c") },
    ];
    let names = |level: &str| {
        let plan = first(&config("", level, &zoned));
        plan.compartments.into_iter().map(|c| (c.name, c.tenants.len())).collect::<Vec<_>>()
    };
    assert_eq!(names("2"), [("red".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(names("1"), [("all".to_owned(), 3)]);
    assert_eq!(names("baseline"), [("host".to_owned(), 3)]);
}

#[test]
fn a_tenant_past_the_last_vlan_gets_another_number() {
    let config = config("first_vlan = 4093", "1", &tenants(&["a"]));
    let previous = Numbers { tenants: BTreeMap::from([("a".to_owned(), 3)]), ..Numbers::default() };
    let plan = plan(&config, &previous, 8).unwrap();
    assert_eq!((of(&plan, "a").number, of(&plan, "a").vlan), (1, 4093));
}

#[test]
fn names_that_come_get_no_number_of_those_that_go() {
    let numbers = |numbers: &[(&str, u16)]| {
        numbers.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<BTreeMap<_, _>>()
    };
    let kind = Kind { what: "names", most: 3 };
    let previous = numbers(&[("all", 1)]);
    assert_eq!(kind.assign(["a", "b"].into_iter(), &previous), Ok(numbers(&[("a", 2), ("b", 3)])));
    let three = kind.assign(["a", "b", "c"].into_iter(), &previous);
    assert_eq!(three, Ok(numbers(&[("a", 2), ("b", 3), ("c", 1)])), "unless there are no others");
    let four = kind.assign(["a", "b", "c", "d"].into_iter(), &previous);
    assert_eq!(
        four.unwrap_err().to_string(),
        "there are more than 3 names on this host: move some to another"
    );
}

#[test]
fn the_number_of_a_host_is_in_its_addresses_outside() {
    let two = ["host = 0", "host = 4094"].map(|keys| first(&config(keys, "2", &tenants(&["a", "b"]))));
    let macs = |plan: &Plan| plan.compartments.iter().map(|c| c.mac.to_string()).collect::<Vec<_>>();
    assert_eq!(macs(&two[0]), ["02:50:34:00:00:01", "02:50:34:00:00:02"]);
    assert_eq!(macs(&two[1]), ["02:50:34:FF:E0:01", "02:50:34:FF:E0:02"]);
    assert_eq!(of(&two[0], "a"), of(&two[1], "a"), "no other host is in a tenant's network");
}

#[test]
fn a_configuration_without_the_table_has_no_plan() {
    let text = "[[tenant]]\nname = \"a\"\n[[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.1\"]\n";
    let config = Config::parse(Path::new("x.toml"), text).unwrap();
    assert_eq!(plan(&config, &Numbers::default(), 8), Err(PlanError::NoTopology));
}

#[test]
fn names_of_interfaces_fit_and_addresses_are_local() {
    let previous = Numbers {
        tenants: BTreeMap::from([("a".to_owned(), 4000)]),
        compartments: BTreeMap::from([("a".to_owned(), mac::MAX_NUMBER)]),
        ..Numbers::default()
    };
    let plan = plan(&config("first_vlan = 1", "2", &tenants(&["a"])), &previous, 8).unwrap();
    let compartment = &plan.compartments[0];
    let links = [compartment.in_out.as_ref().unwrap(), of(&plan, "a").gateway.as_ref().unwrap()];
    assert_eq!(links.map(|link| &*link.outer), ["p4s4095io", "p4s4095gw4000"]);
    for mac in [compartment.mac, of(&plan, "a").mac] {
        assert!(mac.is_local() && mac.is_unicast() && mac != plan.gateway_mac);
    }
    assert_ne!(compartment.mac, of(&plan, "a").mac);
}

#[test]
fn a_level_of_one_key_keeps_the_tenants_networks() {
    let names = tenants(&["a", "b"]);
    let two = first(&config("", "2", &names));
    let one = plan(&config("", "1", &names), &two.numbers(), 8).unwrap();
    let networks = |plan: &Plan| ["a", "b"].map(|name| (of(plan, name).vlan, of(plan, name).mac));
    assert_eq!(networks(&one), networks(&two));
    let fields = two.diff(&one).to_string();
    assert!(
        fields.contains("~ host: level = 2 -> 1\n")
            && fields.contains("~ tenant a: compartment = a -> all, "),
        "{fields}"
    );
}

#[test]
fn ports_keep_their_virtual_functions() {
    let keys = "nic_switch = \"sriov\"\noutside_vlan = 9";
    let plan_of = |names: &[&'static str], before: &Numbers| {
        plan(&config(keys, "2", &tenants(names)), before, 8).unwrap()
    };
    let two = plan_of(&["a", "b"], &Numbers::default());
    assert_eq!(two.functions.len(), two.vfs());
    let numbers: BTreeSet<_> = two.functions.values().copied().collect();
    assert_eq!(numbers, (0..6).collect(), "the lowest ones");
    let one = plan_of(&["b"], &two.numbers());
    assert!(one.functions.iter().all(|(port, number)| two.functions[port] == *number));
    let again = plan_of(&["b", "c"], &one.numbers());
    assert_eq!(
        again.functions.values().copied().collect::<BTreeSet<_>>(),
        (0..6).collect(),
        "none is wasted"
    );
    assert!(one.functions.iter().all(|(port, number)| again.functions[port] == *number));
    assert!(first(&config("", "2", &tenants(&["a"]))).functions.is_empty());
}
