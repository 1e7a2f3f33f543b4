//! The programs of the packages in the guest: configured as an operator does, and started as systemd does.
//! The guest has no systemd; units and configuration are read where the packages put them.

use std::sync::OnceLock;

use crate::common::deb::build;
use crate::common::unit::{Environment, Unit};
use p4shield_testbed::{Guest, leftover};

/// The packages that a tenant installs in a VM, in the order of their dependencies.
const PACKAGES: [&str; 2] = ["p4shield-common_", "p4shield-agent_"];

/// The tenant's key, where the sample of the configuration expects it.
pub(crate) const KEY: &str = "/etc/p4shield/agent.key";

/// The configuration that agent and auditor share.
const CONFIGURATION: &str = "/etc/p4shield/agent.conf";

/// Returns the packages as file names and contents. Both tests use the same ones.
pub(crate) fn packages() -> &'static [(String, Vec<u8>)] {
    static BUILT: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = leftover::folder("deb").unwrap();
        let built = build(folder.path());
        let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let wanted = PACKAGES.map(|prefix| {
            let package = built.iter().find(|path| name(path).starts_with(prefix));
            let package = package.unwrap_or_else(|| panic!("no package {prefix}: {built:?}"));
            (name(package), std::fs::read(package).unwrap())
        });
        wanted.into()
    })
}

/// Installs the packages, sets these variables in the configuration file, which has all of them, and adds a
/// line to it.
pub(crate) fn install(guest: &mut Guest, variables: &[(&str, &str)], added: &str) {
    let said = guest.install().unwrap();
    assert!(said.contains("p4shield-agent: edit /etc/p4shield/agent.conf"), "{said}");
    guest.must(&format!("chmod 600 {KEY}")).unwrap();
    for (name, value) in variables {
        let change = format!("sed -i 's|^{name}=.*|{name}=\"{value}\"|' {CONFIGURATION}");
        guest.must(&format!("grep -q '^{name}=' {CONFIGURATION} && {change}")).unwrap();
    }
    guest.must(&format!("echo '{added}' >>{CONFIGURATION}")).unwrap();
}

/// Returns the line that runs a unit's program as systemd does: in the folders and with the environment that
/// the unit says, and no other one.
pub(crate) fn line(guest: &mut Guest, unit: &str, instance: &str) -> String {
    let unit = guest.must(&format!("cat /usr/lib/systemd/system/{unit}.service")).unwrap();
    let unit = Unit::parse(&unit, instance);
    let file = unit.value("EnvironmentFile").expect("the unit has no EnvironmentFile");
    let environment = Environment::parse(&guest.must(&format!("cat {file}")).unwrap());
    for (directive, parent) in [("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")] {
        if let Some(folder) = unit.value(directive) {
            guest.must(&format!("mkdir -p {parent}/{folder}")).unwrap();
        }
    }
    let variables = environment.all().iter().map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> =
        variables.chain(unit.command(&environment)).map(|word| format!("'{word}'")).collect();
    format!("env -i {}", words.join(" "))
}
