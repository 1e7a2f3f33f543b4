//! What the library refuses, and whom it leaves alone.

mod common;

use common::daemon::{Cloud, Does, library, usable};
use common::switch::{nowhere, testpmd};
use p4shield_attach::Notice;
use p4shield_testbed::dpdk::Testpmd;
use p4shield_testbed::process::run;
use p4shield_testbed::wait_until;
use std::process::Command;

#[test]
fn a_process_without_dpdk_is_unaffected() {
    let out = Command::new("sh").args(["-c", "echo works"]).env("LD_PRELOAD", library()).output().unwrap();
    assert!(out.status.success());
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (&b"works\n"[..], &b""[..]));
}

/// What the library needs is in every process; DPDK it takes from the switch.
#[test]
fn the_library_needs_no_dpdk() {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(library()).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let needs: Vec<_> = elf.dynamic_symbols().filter(|s| s.is_undefined()).collect();
    assert!(needs.iter().all(|s| !s.name_bytes().unwrap().starts_with(b"rte_")));
    let libraries = Command::new("ldd").arg(library()).output().unwrap();
    assert!(!String::from_utf8_lossy(&libraries.stdout).contains("librte_"));
}

fn starts_no_port(setup: p4shield_testbed::dpdk::TestpmdSetup, because: &str) {
    let ns = nowhere();
    let said = match setup.vdev("net_null0").start(&ns) {
        Ok(mut testpmd) => {
            let said = testpmd.command("start").unwrap();
            assert!(said.contains("Not all ports were started"), "{said}");
            // A thread of its own writes the library's log.
            let _ = wait_until("the library's log", 60, || testpmd.transcript().contains(because));
            testpmd.transcript()
        }
        // testpmd ends if it cannot start its ports.
        Err(error) => error.to_string(),
    };
    assert!(said.contains("no port will be started") && said.contains(because), "{said}");
}

#[test]
fn without_a_configuration_no_port_is_started() {
    if !usable(Testpmd::usable()) {
        return;
    }
    starts_no_port(Testpmd::setup().env("LD_PRELOAD", library()), "P4SHIELD_CONFIG is not set");
}

#[test]
fn with_an_invalid_configuration_no_port_is_started() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("1s", "");
    let text = std::fs::read_to_string(cloud.config()).unwrap();
    std::fs::write(cloud.config(), text.replace("10.0.2.1", "10.0.1.1")).unwrap();
    starts_no_port(testpmd(&cloud), "10.0.1.1");
}

/// Rules that lead packets to other ports fail; those that choose a queue are the driver's matter.
#[test]
fn a_flow_rule_that_bypasses_is_refused_and_reported() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("1s", "");
    let daemon = cloud.daemon(|_| Does::Pass);
    let ns = nowhere();
    let mut testpmd = testpmd(&cloud).vdev("net_null0").start(&ns).unwrap();
    daemon.wait_lanes(1);
    let mut create = |actions: &str| {
        testpmd.command(&format!("flow create 0 ingress pattern eth / end actions {actions} / end")).unwrap()
    };
    for actions in ["port_id id 1", "vf id 1", "represented_port ethdev_port_id 0", "count / pf"] {
        let said = create(actions);
        assert!(said.contains("bypass the tenants' programs"), "{actions}: {said}");
    }
    for actions in ["queue index 0", "mark id 1 / rss", "drop"] {
        let said = create(actions);
        assert!(!said.contains("bypass the tenants' programs"), "{actions}: {said}");
    }
    let reported =
        || daemon.remarks().iter().any(|r| matches!(r, Notice::Bypass(t) if t.contains("PORT_ID")));
    wait_until("the remark", 30, reported).unwrap();
    assert!(testpmd.quit().unwrap().success());
}

/// A bonding device's packets are judged once, where the switch takes them.
#[test]
fn members_of_a_bonding_device_are_mediated_once() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("1s", "");
    let daemon = cloud.daemon(|_| Does::Pass);
    let ns = nowhere();
    let setup = testpmd(&cloud).vdev("net_null0").vdev("net_bonding0,mode=1,slave=net_null0");
    let Ok(mut testpmd) = setup.start(&ns) else {
        p4shield_need::skip("bonding", "this DPDK has no bonding device");
        return;
    };
    // The member is a port with a lane of its own until testpmd configures the bonding device.
    wait_until("the bonding device", 30, || daemon.ports().contains("net_bonding0"))
        .unwrap_or_else(|e| panic!("{e}: {:?}", daemon.ports()));
    daemon.wait_lanes(1);
    assert!(testpmd.quit().unwrap().success(), "{}", testpmd.transcript());
}

/// Callbacks are a process's own: one that joins another's ports would receive packets that no program
/// has judged.
#[test]
fn a_secondary_process_is_refused() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for words in [&["--proc-type=secondary"][..], &["--proc-type", "secondary"]] {
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-pci", "--no-telemetry", "--file-prefix=p4shield-none"]).args(words);
        let out =
            command.env("LD_PRELOAD", library()).env("RUNTIME_DIRECTORY", folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains("a secondary DPDK process"), "{said}");
    }
}

/// `rte_eth_rx_burst` is inlined into its caller: built without callbacks, it calls none.
const SILENT: &str = r#"
#include <stdio.h>
#undef RTE_ETHDEV_RXTX_CALLBACKS
#include <rte_eal.h>
#include <rte_ethdev.h>

int main(int argc, char **argv)
{
	const struct rte_eth_conf conf = {0};
	struct rte_mempool *pool;
	struct rte_mbuf *packet;

	if (rte_eal_init(argc, argv) < 0)
		return 2;
	pool = rte_pktmbuf_pool_create("p", 1023, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (rte_eth_dev_configure(0, 1, 1, &conf) != 0 ||
	    rte_eth_rx_queue_setup(0, 0, 64, SOCKET_ID_ANY, NULL, pool) != 0 ||
	    rte_eth_tx_queue_setup(0, 0, 64, SOCKET_ID_ANY, NULL) != 0)
		return 3;
	printf("started: %d\n", rte_eth_dev_start(0));
	return rte_eth_rx_burst(0, 0, &packet, 1) > 1;
}
"#;

#[test]
fn a_program_without_receive_callbacks_starts_no_port() {
    if !usable(Testpmd::usable()) {
        return;
    }
    let cloud = Cloud::new("1s", "");
    let (source, program) = (cloud.file("silent.c"), cloud.file("silent"));
    std::fs::write(&source, SILENT).unwrap();
    let flags = run(Command::new("pkg-config").args(["--cflags", "libdpdk"])).unwrap();
    let mut compile = Command::new("cc");
    compile.arg("-o").arg(&program).arg(&source).args(flags.split_whitespace());
    run(compile.args(["-lrte_ethdev", "-lrte_mbuf", "-lrte_mempool", "-lrte_eal"])).unwrap();
    let start = |environment: &[(&str, std::path::PathBuf)]| {
        let mut command = Command::new(&program);
        command.args([
            "--no-pci",
            "--no-huge",
            "-m",
            "64",
            "--no-shconf",
            "--no-telemetry",
            "--vdev=net_null0",
        ]);
        command.env("RUNTIME_DIRECTORY", cloud.file("run")).envs(environment.iter().cloned());
        let out = command.output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
    };
    std::fs::create_dir(cloud.file("run")).unwrap();
    let alone = start(&[]);
    assert!(alone.contains("started: 0"), "{alone}");
    let said = start(&cloud.environment());
    assert!(said.contains("started: -95") && said.contains("without calling receive callbacks"), "{said}");
}
