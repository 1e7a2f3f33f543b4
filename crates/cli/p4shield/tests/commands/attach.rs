//! `p4shield attach` and `detach`, as an operator or a script runs them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{code, p4shield, stdout};
use tempfile::TempDir;

const OVS_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const UNIT: &str = "/lib/systemd/system/ovs-vswitchd.service";
const DROP_IN: &str = "etc/systemd/system/ovs-vswitchd.service.d/90-p4shield.conf";

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Returns a root folder of a Debian with Open vSwitch over DPDK and P4 Shield; `None` if that package is
/// missing.
fn host() -> Option<TempDir> {
    if !Path::new(OVS_DPDK).exists() || !Path::new(UNIT).exists() {
        p4shield_need::skip("openvswitch-dpdk", "the package openvswitch-switch-dpdk is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| {
        let at = folder.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        at
    };
    std::fs::copy(OVS_DPDK, at(OVS_DPDK)).unwrap();
    std::fs::copy(UNIT, at(UNIT)).unwrap();
    symlink(OVS_DPDK, at("/usr/sbin/ovs-vswitchd")).unwrap();
    let text = "attachment = \"dpdk\"\n[[tenant]]\nname = \"a\"\n\
                [[tenant.vm]]\nname = \"v\"\naddresses = [\"10.0.0.2\"]\n";
    std::fs::write(at("/etc/p4shield/p4shield.toml"), text).unwrap();
    let source = at("/library.c");
    std::fs::write(&source, "int rte_eth_dev_start(void) { return 0; }").unwrap();
    let library = at("/usr/local/lib/p4shield/libp4shield_dpdk.so");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(&source).status();
    assert!(made.unwrap().success());
    std::fs::remove_file(source).unwrap();
    Some(folder)
}

/// Returns every file and folder below `folder`.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all.sort();
    all
}

#[test]
fn detach_removes_all_that_attach_installed() {
    let Some(host) = host() else { return };
    std::fs::create_dir_all(host.path().join("etc/systemd/system")).unwrap();
    let (root, before) = (host.path().to_str().unwrap(), tree(host.path()));
    let printed = p4shield(&["attach", "dpdk", "--root", root]);
    assert_eq!(code(&printed), 0, "{}", stdout(&printed));
    let text = stdout(&printed);
    assert!(
        text.contains("LD_PRELOAD=/usr/local/lib/p4shield/libp4shield_dpdk.so") && text.contains("--apply")
    );
    assert_eq!(tree(host.path()), before, "printing changes nothing");

    let applied = p4shield(&["attach", "dpdk", "--root", root, "--apply", "--json"]);
    assert_eq!(code(&applied), 0, "{}", stdout(&applied));
    let said = json(&applied);
    assert_eq!(
        (&said["installed"], &said["changed"], &said["restarted"]),
        (&true.into(), &true.into(), &false.into())
    );
    let written = std::fs::read_to_string(host.path().join(DROP_IN)).unwrap();
    assert_eq!(said["drop_in"]["text"], written.as_str());
    let checked = json(&p4shield(&["attach", "dpdk", "--root", root, "--check", "--json"]));
    assert_eq!((&checked["installed"], &checked["changed"]), (&true.into(), &false.into()));

    let planned = stdout(&p4shield(&["detach", "dpdk", "--root", root]));
    assert!(planned.contains("--apply removes") && host.path().join(DROP_IN).exists(), "{planned}");
    assert_eq!(
        code(&p4shield(&["detach", "xsk", "--root", root, "--apply"])),
        3,
        "it is not attached by xsk"
    );
    let gone = p4shield(&["detach", "dpdk", "--root", root, "--apply"]);
    assert_eq!(code(&gone), 0);
    assert_eq!(tree(host.path()), before);
    let again = p4shield(&["detach", "dpdk", "--root", root, "--apply"]);
    assert!(code(&again) == 0 && stdout(&again).contains("nothing to do"));
}

#[test]
fn problems_are_refused_with_a_remedy() {
    let Some(host) = host() else { return };
    let root = host.path().to_str().unwrap();
    std::fs::remove_file(host.path().join("etc/p4shield/p4shield.toml")).unwrap();
    for arguments in [&["--check"][..], &["--apply"], &[]] {
        let out = p4shield(&[&["attach", "dpdk", "--root", root][..], arguments].concat());
        assert_eq!(code(&out), 3, "{arguments:?}");
        let text = stdout(&out);
        assert!(text.contains("PROBLEM  configuration") && text.contains("-> correct it"), "{text}");
    }
    assert!(!host.path().join(DROP_IN).exists());
    // A switch below another root folder cannot be restarted.
    let text = "attachment = \"dpdk\"\n[[tenant]]\nname = \"a\"\n\
                [[tenant.vm]]\nname = \"v\"\naddresses = [\"10.0.0.2\"]\n";
    std::fs::write(host.path().join("etc/p4shield/p4shield.toml"), text).unwrap();
    assert_eq!(code(&p4shield(&["attach", "dpdk", "--root", root, "--apply", "--restart"])), 1);
    assert!(!host.path().join(DROP_IN).exists());
}

#[test]
fn a_switch_without_a_service_gets_a_command_line() {
    let out = p4shield(&["attach", "dpdk", "--json", "--", "true", "--vdev=net_null0", "it's"]);
    assert_eq!(code(&out), 3, "`true` does not use DPDK");
    let said = json(&out);
    let command = said["command"].as_str().unwrap();
    assert!(
        command.starts_with("env LD_PRELOAD=/") && command.ends_with(r"true --vdev=net_null0 'it'\''s'"),
        "{command}"
    );
    assert!(said["drop_in"].is_null());
    let findings = said["findings"].as_array().unwrap();
    assert!(findings.iter().any(|f| f["check"] == "program" && f["outcome"] == "problem"));
}

#[test]
fn wrong_usage_is_reported_before_any_check() {
    for arguments in [
        &["attach"][..],
        &["attach", "wire"],
        &["attach", "dpdk", "--restart"],
        &["attach", "dpdk", "--check", "--apply"],
        &["attach", "dpdk", "--unit", "../../x"],
        &["attach", "dpdk", "--apply", "--", "dpdk-testpmd"],
        &["detach", "dpdk", "--restart"],
    ] {
        assert_eq!(code(&p4shield(arguments)), 2, "{arguments:?}");
    }
}

#[test]
fn the_help_has_examples_and_a_remedy() {
    let text = stdout(&p4shield(&["attach", "--help"]));
    for part in ["LD_PRELOAD", "Examples", "--apply --restart", "dpdk-testpmd", "Exit code 3", "AF_XDP"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(stdout(&p4shield(&["detach", "--help"])).contains("stays in the running switch"));
}

/// Returns the first code block of this language on the operator's page.
fn on_the_page(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/how-to/attach-dpdk.md");
    let text = std::fs::read_to_string(page).unwrap();
    let block = text.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap().to_owned()
}

#[test]
fn the_pages_configuration_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.toml");
    std::fs::write(&file, on_the_page("toml")).unwrap();
    let checked = p4shield(&["run", "--check", "--text-only", "--config", file.to_str().unwrap()]);
    assert_eq!(code(&checked), 0, "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_pages_drop_in_is_the_installed_one() {
    let Some(host) = host() else { return };
    let said = json(&p4shield(&["attach", "dpdk", "--root", host.path().to_str().unwrap(), "--json"]));
    let text = said["drop_in"]["text"].as_str().unwrap();
    let settings = |text: &str| -> Vec<String> {
        text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(settings(text), settings(&on_the_page("ini")));
}
