//! Plans of whole configurations, against golden files. `P4SHIELD_BLESS=1` writes them.

use p4shield_config::Config;
use p4shield_topology::{Compartment, Numbers, Plan, plan};
use std::path::{Path, PathBuf};

const CASES: [&str; 4] = ["tenants", "zones", "level-1", "baseline"];
/// Cores of the host.
const CORES: u32 = 8;

fn golden(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.{extension}"))
}

fn planned(name: &str) -> Plan {
    let config = Config::load(&golden(name, "toml")).unwrap();
    plan(&config, &Numbers::default(), CORES).unwrap()
}

fn compare(name: &str, extension: &str, found: &str) {
    compare_file(&golden(name, extension), found);
}

fn compare_file(path: &Path, found: &str) {
    if std::env::var_os("P4SHIELD_BLESS").is_some() {
        std::fs::write(path, found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} differs from:\n{found}", path.display());
}

fn flows(plan: &Plan) -> String {
    let of = |c: &Compartment| {
        format!(
            "# {}\n{}",
            c.name,
            c.flows(plan.gateway_mac).iter().map(|flow| format!("{flow}\n")).collect::<String>()
        )
    };
    plan.compartments.iter().map(of).collect()
}

#[test]
fn plans_as_text_are_as_written() {
    for name in CASES {
        compare(name, "txt", &planned(name).to_string());
    }
}

#[test]
fn plans_as_json_are_as_written_and_can_be_read() {
    for name in CASES {
        let plan = planned(name);
        let json = serde_json::to_string_pretty(&plan).unwrap() + "\n";
        compare(name, "json", &json);
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

#[test]
fn ports_of_the_nic_switch_are_as_written() {
    for name in CASES {
        let json = serde_json::to_string_pretty(&planned(name).ports()).unwrap();
        compare(name, "ports.json", &(json + "\n"));
    }
}

#[test]
fn rules_are_as_written() {
    for name in CASES {
        compare(name, "flows", &flows(&planned(name)));
    }
}

#[test]
fn pictures_are_as_written() {
    for name in CASES {
        compare(name, "svg", &planned(name).picture());
    }
}

/// README's picture is what `p4shield topology plan --svg` draws for the tutorial on a host with two cores.
#[test]
fn the_readmes_picture_is_the_tutorials_plan() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let page = std::fs::read_to_string(docs.join("tutorials/tenant-switches.md")).unwrap();
    let toml = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let toml = toml.replace("level = \"baseline\"", "level = \"2\"");
    let config = Config::parse(Path::new("p4shield.toml"), &toml).unwrap();
    let plan = plan(&config, &Numbers::default(), 2).unwrap();
    compare_file(&docs.join("tenant-switches.svg"), &plan.picture());
}
