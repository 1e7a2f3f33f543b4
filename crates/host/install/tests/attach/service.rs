//! Tests of the switch's service: what is installed, what prevents it, and what remains after removal.

use std::path::Path;
use std::process::Command;

use p4shield_install::{
    InstallError, OVS_UNIT, PreloadedAttachment, Request, Severity, apply, examine, installed, remove,
};
use p4shield_testbed::process::{find, run};
use p4shield_testbed::{NetNs, ovsdb};

use crate::host::{Host, OVS_DPDK, found, host, problem};

const DROP_IN: &str = "/etc/systemd/system/ovs-vswitchd.service.d/90-p4shield.conf";

#[test]
fn attach_and_detach_restore_the_distributions_switch() {
    let host = host!();
    host.write("/etc/systemd/system/other.service", b"");
    let before = host.everything();
    let report = host.examine();
    assert_eq!(report.problems().count(), 0, "{:#?}", report.findings);
    assert_eq!(report.program.as_deref(), Some(Path::new(OVS_DPDK)));
    assert!(found(&report, Severity::Good, "librte_ethdev.so"), "{:#?}", report.findings);
    assert_eq!(host.everything(), before, "the examination changes nothing");

    assert!(apply(&report, false).unwrap().changed);
    let text = std::fs::read_to_string(host.at(DROP_IN)).unwrap();
    for line in [
        "After=p4shield.service",
        "Wants=p4shield.service",
        "AssertPathExists=/usr/local/lib/p4shield/libp4shield_dpdk.so",
        "AssertPathExists=/etc/p4shield/p4shield.toml",
        "Environment=\"LD_PRELOAD=/usr/local/lib/p4shield/libp4shield_dpdk.so\"",
        "Environment=\"P4SHIELD_CONFIG=/etc/p4shield/p4shield.toml\"",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in:\n{text}");
    }
    let again = host.examine();
    assert!(again.installed);
    assert!(!apply(&again, false).unwrap().changed, "it was installed already");
    assert_eq!(
        installed(&host.root(), PreloadedAttachment::Dpdk, OVS_UNIT).as_deref(),
        Some(Path::new(DROP_IN))
    );

    assert!(remove(&host.root(), PreloadedAttachment::Dpdk, OVS_UNIT, false).unwrap().changed);
    assert_eq!(host.everything(), before);
    assert!(
        !remove(&host.root(), PreloadedAttachment::Dpdk, OVS_UNIT, false).unwrap().changed,
        "it was removed already"
    );
}

#[test]
fn an_afxdp_switch_is_attached_with_its_own_library() {
    let host = host!();
    host.configure("xsk", "");
    let report = examine(&host.request(PreloadedAttachment::Xsk));
    assert_eq!(report.problems().count(), 0, "{:#?}", report.findings);
    apply(&report, false).unwrap();
    let text = std::fs::read_to_string(host.at(DROP_IN)).unwrap();
    assert!(text.contains("LD_PRELOAD=/usr/local/lib/p4shield/libp4shield_xsk.so\""), "{text}");
    // A switch has one attachment.
    host.configure("dpdk", "");
    let other = problem(&host.examine());
    assert!(other.remedy.as_ref().unwrap().contains("detach xsk"), "{other:?}");
    let error = remove(&host.root(), PreloadedAttachment::Dpdk, OVS_UNIT, false).unwrap_err();
    assert!(matches!(error, InstallError::NotOurs { .. }), "{error}");
    remove(&host.root(), PreloadedAttachment::Xsk, OVS_UNIT, false).unwrap();
    assert_eq!(host.examine().problems().count(), 0);
}

#[test]
fn systemd_accepts_the_unit_with_the_drop_in() {
    let host = host!();
    if find("systemd-analyze").is_none() {
        p4shield_need::skip("systemd", "there is no systemd-analyze");
        return;
    }
    apply(&host.examine(), false).unwrap();
    // Errors about units that this small host lacks do not concern the drop-in.
    let root = format!("--root={}", host.at("/").display());
    let said = Command::new("systemd-analyze").args([&root, "verify", OVS_UNIT]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.contains("90-p4shield.conf") && !said.contains("cycle"), "{said}");
    // systemd-analyze reads the drop-in: it reports a broken one.
    host.write(DROP_IN, b"[Service]\nEnvironment=\"\nAssertPathExists=x\n");
    let said = Command::new("systemd-analyze").args([&root, "verify", OVS_UNIT]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("90-p4shield.conf"));
}

/// cloud-init's first service waits for the network in early boot, and Open vSwitch's unit comes before the
/// network.
#[test]
fn the_drop_in_causes_no_ordering_cycle_at_boot() {
    let host = host!();
    if find("systemd-analyze").is_none() {
        p4shield_need::skip("systemd", "there is no systemd-analyze");
        return;
    }
    let unit =
        |name: &str, text: &str| host.write(&format!("/usr/lib/systemd/system/{name}"), text.as_bytes());
    unit("sysinit.target", "[Unit]\nWants=cloud-init.service\n");
    unit("basic.target", "[Unit]\nRequires=sysinit.target\nAfter=sysinit.target\n");
    let early = "[Service]\nType=oneshot\nExecStart=/bin/true\n[Unit]\nDefaultDependencies=no\n";
    unit("ovsdb-server.service", early);
    unit("networking.service", &format!("{early}Before=network.target\nWants={OVS_UNIT}\n"));
    let cloud =
        format!("{early}After=networking.service\nRequires=networking.service\nBefore=sysinit.target\n");
    unit("cloud-init.service", &cloud);
    let ours = include_bytes!("../../../../../packaging/systemd/p4shield.service");
    let place = "/usr/local/lib/systemd/system/p4shield.service";
    let circle = || {
        let root = format!("--root={}", host.at("/").display());
        let said = Command::new("systemd-analyze").args([&root, "verify", "basic.target"]).output().unwrap();
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    host.write(place, ours);
    apply(&host.examine(), false).unwrap();
    assert!(!circle().contains("ordering cycle"), "{}", circle());
    // The check detects a cycle.
    let late = String::from_utf8_lossy(ours).replace("DefaultDependencies=no", "");
    host.write(place, late.as_bytes());
    assert!(circle().contains("ordering cycle"), "{}", circle());
}

#[test]
fn a_missing_or_masked_unit_is_reported() {
    let host = host!();
    host.link(&format!("/etc/systemd/system/{OVS_UNIT}"), "/dev/null");
    assert!(found(&host.examine(), Severity::Problem, "masked"));
    let request = Request {
        target: p4shield_install::Target::Unit("nowhere.service".into()),
        program: Some(OVS_DPDK.into()),
        ..host.request(PreloadedAttachment::Dpdk)
    };
    let missing = problem(&examine(&request));
    assert!(
        missing.what.contains("nowhere.service")
            && missing.remedy.unwrap().contains("openvswitch-switch-dpdk")
    );
}

#[test]
fn other_preloads_are_kept_and_overrides_are_reported() {
    let host = host!();
    let folder = format!("/etc/systemd/system/{OVS_UNIT}.d");
    host.write(
        &format!("{folder}/10-malloc.conf"),
        b"[Service]\nEnvironment=A=1 \"LD_PRELOAD=/usr/lib/libjemalloc.so.2\"\n",
    );
    let report = host.examine();
    assert_eq!(
        report.environment[0].1,
        "/usr/local/lib/p4shield/libp4shield_dpdk.so:/usr/lib/libjemalloc.so.2"
    );
    apply(&report, false).unwrap();
    assert!(host.examine().installed, "the own drop-in is no other preload");
    remove(&host.root(), PreloadedAttachment::Dpdk, OVS_UNIT, false).unwrap();
    assert!(host.at(&format!("{folder}/10-malloc.conf")).exists());

    host.write(&format!("{folder}/99-last.conf"), b"[Service]\nEnvironment=LD_PRELOAD=/x.so\n");
    assert!(problem(&host.examine()).what.contains("99-last.conf"));
    std::fs::remove_file(host.at(&format!("{folder}/99-last.conf"))).unwrap();
    host.write("/etc/default/openvswitch-switch", b"P4SHIELD_CONFIG=/other.toml\n");
    let error = problem(&host.examine());
    assert!(error.what.contains("/etc/default/openvswitch-switch"), "{error:?}");
    let refused = apply(&host.examine(), false).unwrap_err();
    assert!(matches!(refused, InstallError::Refused(_)) && !host.at(DROP_IN).exists());
}

#[test]
fn a_foreign_file_with_the_drop_ins_name_stays() {
    let host = host!();
    host.write(DROP_IN, b"[Service]\nNice=1\n");
    assert!(problem(&host.examine()).what.contains("not written by P4 Shield"));
    remove(&host.root(), PreloadedAttachment::Dpdk, OVS_UNIT, false).unwrap_err();
    assert!(host.at(DROP_IN).exists());
}

#[test]
fn an_unprivileged_switch_must_reach_the_daemon() {
    let host = host!();
    let options = b"OVS_CTL_OPTS=\"--ovs-user=openvswitch:openvswitch\"\n";
    host.write("/etc/passwd", b"root:x:0:0::/:/bin/sh\nopenvswitch:x:112:118::/:/bin/false\n");
    host.write("/etc/group", b"openvswitch:x:118:\n");
    host.write("/etc/default/openvswitch-switch", options);
    assert!(problem(&host.examine()).remedy.unwrap().contains("switch_uids = [112]"));
    host.configure("dpdk", "switch_uids = [112]");
    assert!(found(&host.examine(), Severity::Good, "which the daemon admits"));
    host.configure("dpdk", "switch_gids = [118]");
    assert_eq!(host.examine().problems().count(), 0);
    host.mode("/etc/p4shield/p4shield.toml", 0o600);
    assert!(problem(&host.examine()).what.contains("cannot read"));
    host.write("/etc/passwd", b"root:x:0:0::/:/bin/sh\n");
    assert!(problem(&host.examine()).what.contains("no such user"));
}

#[test]
fn a_missing_invalid_or_mismatched_configuration_is_reported() {
    let host = host!();
    host.configure("wire", "");
    assert!(problem(&host.examine()).remedy.unwrap().contains("attachment = \"dpdk\""));
    host.write("/etc/p4shield/p4shield.toml", b"nonsense = 1\n");
    assert!(problem(&host.examine()).what.contains("nonsense"));
    std::fs::remove_file(host.at("/etc/p4shield/p4shield.toml")).unwrap();
    assert!(problem(&host.examine()).what.contains("cannot read"));
}

#[test]
fn a_library_unsafe_for_a_service_of_root_is_refused() {
    let host = host!();
    let library = "/usr/local/lib/p4shield/libp4shield_dpdk.so";
    host.mode("/usr/local/lib/p4shield", 0o777);
    assert!(problem(&host.examine()).what.contains("can be written"));
    host.mode("/usr/local/lib/p4shield", 0o755);
    host.mode(library, 0o664);
    assert!(problem(&host.examine()).what.contains("can be written"));
    host.mode(library, 0o644);
    assert_eq!(host.examine().problems().count(), 0);
    let named = |path: &str| {
        examine(&Request { library: Some(path.into()), ..host.request(PreloadedAttachment::Dpdk) })
    };
    host.compile("int rte_eth_dev_start(void) { return 0; }", "/opt/my lib/x.so", &["-shared", "-fPIC"]);
    assert!(problem(&named("/opt/my lib/x.so")).what.contains("LD_PRELOAD"));
    host.compile("int nothing;", "/opt/x.so", &["-shared", "-fPIC"]);
    assert!(problem(&named("/opt/x.so")).what.contains("not P4 Shield's library"));
    std::fs::remove_file(host.at(library)).unwrap();
    assert!(problem(&host.examine()).remedy.unwrap().contains("make install"));
}

#[test]
fn placement_inline_needs_a_library_of_its_own() {
    let host = host!();
    let file = "/etc/p4shield/p4shield.toml";
    let text = std::fs::read_to_string(host.at(file)).unwrap();
    host.write(file, format!("placement = \"inline\"\n{text}").as_bytes());
    let missing = problem(&host.examine());
    assert!(missing.what.contains("/usr/local/lib/p4shield/libp4shield_inline.so"), "{}", missing.what);
    assert!(missing.remedy.unwrap().contains("make install"));
    let library = "/usr/local/lib/p4shield/libp4shield_inline.so";
    host.compile("int nothing;", library, &["-shared", "-fPIC"]);
    assert!(problem(&host.examine()).what.contains("not P4 Shield's library"));
    host.compile("int p4shield_inline_table(void) { return 0; }", library, &["-shared", "-fPIC"]);
    assert_eq!(host.examine().problems().count(), 0);
    host.mode(library, 0o664);
    assert!(problem(&host.examine()).what.contains("can write"));
}

#[test]
fn a_missing_daemon_is_reported_as_a_note() {
    let host = host!();
    std::fs::remove_file(host.at("/usr/local/lib/systemd/system/p4shield.service")).unwrap();
    let report = host.examine();
    assert!(found(&report, Severity::Note, "p4shield.service"));
    assert_eq!(report.problems().count(), 0);
}

#[test]
fn hw_offload_in_the_database_is_refused() {
    let host = host!();
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let ns = NetNs::create("ovsdb").unwrap();
    let database = ovsdb::Database::start(&ns).unwrap();
    let ask = |host: &Host| {
        examine(&Request { database: Some(database.socket()), ..host.request(PreloadedAttachment::Dpdk) })
    };
    assert!(found(&ask(&host), Severity::Note, "not configured to use DPDK"));
    let set = |what: &str| database.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", what]).unwrap();
    set("other_config:dpdk-init=true");
    assert!(found(&ask(&host), Severity::Good, "the library sees the packets of all"));
    set("other_config:hw-offload=true");
    let offload = problem(&ask(&host));
    assert!(offload.remedy.unwrap().contains("hw-offload=false"));
    drop(database);
    let gone =
        Request { database: Some("/nonexistent/db.sock".into()), ..host.request(PreloadedAttachment::Dpdk) };
    assert!(found(&examine(&gone), Severity::Note, "were not checked"));
}

#[test]
fn the_packages_files_are_unchanged() {
    let host = host!();
    apply(&host.examine(), false).unwrap();
    if find("dpkg").is_none() {
        p4shield_need::skip("dpkg", "there is no dpkg");
        return;
    }
    let changed = run(Command::new("dpkg").args(["--verify", "openvswitch-switch-dpdk"])).unwrap();
    assert_eq!(changed, "");
}
