//! Tests with the distribution's programs and with compiled counter-examples.

use std::path::Path;
use std::process::Command;

use p4shield_install::{PreloadedAttachment, Report, Request, Root, Severity, Target, examine};
use p4shield_testbed::process::{find, run};

use crate::host::{found, host, problem};

/// Examines a program of this machine.
fn real(kind: PreloadedAttachment, words: &[&str]) -> Report {
    examine(&Request {
        root: Root::new("/"),
        kind,
        target: Target::Command(words.iter().map(|w| (*w).to_owned()).collect()),
        program: None,
        library: None,
        config: "/etc/p4shield/p4shield.toml".into(),
        database: None,
    })
}

#[test]
fn testpmd_calls_receive_callbacks() {
    if find("dpdk-testpmd").is_none() {
        p4shield_need::skip("dpdk", "the package dpdk-dev is not installed");
        return;
    }
    let report = real(PreloadedAttachment::Dpdk, &["dpdk-testpmd", "--vdev=net_null0", "--", "-i"]);
    assert!(found(&report, Severity::Good, "calls receive callbacks"), "{:#?}", report.findings);
    assert!(report.drop_in.is_none());
    let command = report.command().unwrap();
    assert!(
        command.starts_with("env LD_PRELOAD=/") && command.ends_with("dpdk-testpmd --vdev=net_null0 -- -i")
    );
    assert!(command.contains(" P4SHIELD_CONFIG=/etc/p4shield/p4shield.toml "), "{command}");
    // A DPDK program opens AF_XDP sockets with its driver.
    assert!(found(&real(PreloadedAttachment::Xsk, &["dpdk-testpmd"]), Severity::Good, "net_af_xdp"));
}

#[test]
fn open_vswitch_without_dpdk_is_refused_with_a_remedy() {
    let program = Path::new("/usr/lib/openvswitch-switch/ovs-vswitchd");
    if !program.exists() {
        p4shield_need::skip("openvswitch", "the package openvswitch-switch is not installed");
        return;
    }
    let host = host!();
    host.write("/usr/sbin/ovs-vswitchd.plain", &std::fs::read(program).unwrap());
    host.link("/etc/alternatives/ovs-vswitchd", "/usr/sbin/ovs-vswitchd.plain");
    let refused = problem(&host.examine());
    assert!(refused.what.contains("does not use DPDK"), "{refused:?}");
    assert!(refused.remedy.unwrap().contains("update-alternatives --set"));
    // It opens AF_XDP sockets.
    host.configure("xsk", "");
    assert!(found(&examine(&host.request(PreloadedAttachment::Xsk)), Severity::Good, "libxdp"));
}

#[test]
fn a_static_program_is_refused() {
    let host = host!();
    host.compile("int main(void) { return 0; }", "/opt/static", &["-static"]);
    for kind in PreloadedAttachment::ALL {
        host.configure(kind.word(), "");
        let refused = problem(&host.examine_program(kind, "/opt/static"));
        assert!(refused.what.contains("linked statically") && refused.remedy.unwrap().contains("wire"));
    }
}

#[test]
fn dpdk_inside_the_program_is_refused() {
    let host = host!();
    let text = r#"#include <stdio.h>
        int main(void) { puts("EAL: Detected CPU lcores: 2"); return 0; }"#;
    host.compile(text, "/opt/inside", &[]);
    let refused = problem(&host.examine_program(PreloadedAttachment::Dpdk, "/opt/inside"));
    assert!(refused.what.contains("DPDK is linked statically into"), "{refused:?}");
    host.compile("int main(void) { return 0; }", "/opt/without", &[]);
    let refused = problem(&host.examine_program(PreloadedAttachment::Dpdk, "/opt/without"));
    assert!(refused.what.contains("does not use DPDK"), "{refused:?}");
}

/// Links the distribution's DPDK statically, as some builds of Open vSwitch do.
#[test]
fn the_real_dpdk_inside_a_program_is_refused() {
    let folder = run(Command::new("pkg-config").args(["--variable=libdir", "libdpdk"])).unwrap_or_default();
    if !Path::new(folder.trim()).join("librte_eal.a").exists() {
        p4shield_need::skip("dpdk", "the package libdpdk-dev is not installed");
        return;
    }
    let host = host!();
    let text = "int rte_eal_init(int, char **); int main(int c, char **v) { return rte_eal_init(c, v); }";
    let libraries = ["-l:librte_telemetry.a", "-l:librte_kvargs.a", "-lm", "-lnuma", "-lbsd"];
    let whole = ["-Wl,--whole-archive", "-l:librte_eal.a", "-Wl,--no-whole-archive"];
    host.compile(text, "/opt/bundled", &[&whole[..], &libraries].concat());
    let refused = problem(&host.examine_program(PreloadedAttachment::Dpdk, "/opt/bundled"));
    assert!(refused.what.contains("DPDK is linked statically into"), "{refused:?}");
    assert!(refused.remedy.unwrap().contains("wire"));
}

#[test]
fn receive_callbacks_must_be_called_by_program_or_library() {
    let host = host!();
    let folder = host.at("/opt").display().to_string();
    let (search, run_path) = (format!("-L{folder}"), "-Wl,-rpath,/opt,--allow-shlib-undefined");
    let ethdev =
        "int rte_eth_dev_start(void) { return 0; } int rte_eth_call_rx_callbacks(void) { return 0; }";
    host.compile(ethdev, "/opt/librte_ethdev.so", &["-shared", "-fPIC", "-Wl,-soname,librte_ethdev.so"]);
    let without = "int rte_eth_dev_start(void); int main(void) { return rte_eth_dev_start(); }";
    host.compile(without, "/opt/without", &[&search, "-lrte_ethdev", run_path]);
    let refused = problem(&host.examine_program(PreloadedAttachment::Dpdk, "/opt/without"));
    assert!(refused.what.contains("built without receive callbacks"), "{refused:?}");

    let inner =
        "int rte_eth_call_rx_callbacks(void); int forward(void) { return rte_eth_call_rx_callbacks(); }";
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libswitch.so", &search, "-lrte_ethdev"];
    host.compile(inner, "/opt/libswitch.so", &flags);
    let outer = "int forward(void); int main(void) { return forward(); }";
    host.compile(outer, "/opt/outer", &[&search, "-lswitch", run_path]);
    let report = host.examine_program(PreloadedAttachment::Dpdk, "/opt/outer");
    assert_eq!(report.problems().count(), 0, "{:#?}", report.findings);
}

#[test]
fn a_program_whose_linker_ignores_the_environment_is_refused() {
    let host = host!();
    host.mode(crate::host::OVS_DPDK, 0o4755);
    assert!(problem(&host.examine()).what.contains("setuid"));
}

#[test]
fn a_script_is_no_program() {
    let host = host!();
    let refused =
        problem(&host.examine_program(PreloadedAttachment::Dpdk, "/usr/share/openvswitch/scripts/ovs-ctl"));
    assert!(refused.remedy.unwrap().contains("--program"));
}
