//! Ports of a switch in a virtual machine that are vhost-user connections to a DPDK switch, by emulation.

use super::machine::{image, qemu};
use super::{Scene, code, example, stderr, wait_until};
use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, OpenVswitch, Testpmd};
use rustix::process::{Signal, kill_process};
use std::process::Command;

impl Scene {
    fn vhost_socket(&self, port: u32) -> String {
        self.folder.path().join(format!("vhost{port}.sock")).display().to_string()
    }

    /// Starts testpmd, which listens for one port of the switch, and connects to the other:
    ///
    /// ```text
    ///   left ── p0 ── testpmd: io ── vhost1.sock ── port 1 │ router.p4 in a machine │ port 2
    ///   right ─ p1 ── testpmd: io ── vhost2.sock ──────────────────────────────────────┘
    /// ```
    fn start_testpmd(&self) -> Testpmd {
        let [one, two] = [1, 2].map(|port| self.vhost_socket(port));
        let setup = Testpmd::setup().vdev("net_af_packet0,iface=p0,qpairs=1");
        let setup = setup.vdev(&format!("net_vhost0,iface={one}")).vdev("net_af_packet1,iface=p1,qpairs=1");
        let mut testpmd = setup.vdev(&format!("net_vhost1,iface={two},client=1")).start(&self.host).unwrap();
        testpmd.command("start").unwrap();
        testpmd
    }

    /// Returns the command of a switch in a machine whose ports are the sockets.
    fn vhost_command(&self) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.args(["switch", "run", &example("programs/router.p4"), "--socket"]).arg(self.socket());
        command.arg(format!("--port=1=vhost-user:{}", self.vhost_socket(1)));
        command.arg(format!("--port=2=vhost-user:{},server", self.vhost_socket(2)));
        command
    }

    /// Starts Open vSwitch, which listens for one port of the switch, and connects to the other, with packets
    /// of 3000 bytes:
    ///
    /// ```text
    ///   left ── p0 ── VLAN 1 ── one, the link vhost1.sock ── port 1 │ router.p4 in a machine │ port 2
    ///   right ─ p1 ── VLAN 2 ── two, vhost2.sock ───────────────────────────────────────────────┘
    /// ```
    fn start_open_vswitch(&self) -> OpenVswitch {
        let setup = OpenVswitch::over_dpdk().megabytes(1024).other_config("per-port-memory", "true");
        // Threads that find no packets leave their core to the emulated machine.
        let setup = setup.other_config("pmd-maxsleep", "200").other_config("pmd-sleep-max", "200");
        let ovs = setup.start(&self.host).unwrap();
        for (interface, tag) in [("p0", "tag=1"), ("p1", "tag=2")] {
            // By sockets of the kernel: DPDK's `net_af_packet` has no packets of 3000 bytes.
            add_port(&ovs, interface, tag, &["type=system"]);
        }
        add_port(&ovs, "one", "tag=1", &["type=dpdkvhostuser"]);
        let link = self.vhost_socket(1);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(ovs.folder().join("one"), link).unwrap();
        self.add_second(&ovs);
        ovs
    }

    /// Adds the port of Open vSwitch that connects.
    fn add_second(&self, ovs: &OpenVswitch) {
        let path = format!("options:vhost-server-path={:?}", self.vhost_socket(2));
        add_port(ovs, "two", "tag=2", &["type=dpdkvhostuserclient", &path]);
    }

    fn states(&self) -> [String; 2] {
        [0, 1].map(|port| self.status()["ports"][port]["state"].as_str().unwrap_or_default().to_owned())
    }
}

/// Adds a port for packets of 3000 bytes to Open vSwitch, which makes room for them when it opens a device.
fn add_port(ovs: &OpenVswitch, name: &str, tag: &str, settings: &[&str]) {
    let add =
        ["add-port", OpenVswitch::BRIDGE, name, tag, "--", "set", "Interface", name, "mtu_request=3000"];
    ovs.vsctl(&[&add[..], settings].concat()).unwrap();
    let error = ovs.vsctl(&["get", "Interface", name, "error"]).unwrap();
    assert_eq!(error.trim(), "[]", "{}", ovs.log());
}

#[test]
fn a_switch_in_a_machine_has_ports_at_a_dpdk_switch() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    if let Err(why) = Testpmd::usable() {
        p4shield_need::skip("dpdk", why);
        return;
    }
    let mut testpmd = scene.start_testpmd();
    let mut switch = scene.start_command(&mut scene.in_machine(&scene.vhost_command(), &image));
    let machine = qemu(switch.pid());
    let facts = std::fs::read_to_string(format!("/proc/{}/status", machine.as_raw_nonzero())).unwrap();
    for fact in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(facts.contains(fact), "{facts}");
    }
    assert_eq!(scene.status()["ports"][0]["interface"], "vhost1");
    wait_until("both ports", 30, || scene.states() == ["up", "up"]).unwrap();
    assert!(!scene.pings(), "no entry routes");
    scene.add_routes();
    wait_until("a ping through testpmd and the machine", 60, || scene.pings()).unwrap();
    run(scene.left.command("ping").args(["-c3", "-i0.2", "-s1400", "-W5", "10.9.2.1"])).unwrap();
    scene.asks(&["table", "set", "routes", "10.9.2.0/24", "--action", "drop"]);
    assert!(!scene.pings(), "the entry drops");
    scene.asks(&["table", "set", "routes", "10.9.2.0/24", "--action", "forward", "02:00:00:00:00:02", "2"]);
    wait_until("a ping by the entry", 20, || scene.pings()).unwrap();

    // The other switch is gone, and comes back.
    kill_process(testpmd.pid(), Signal::KILL).unwrap();
    wait_until("the end of testpmd", 20, || testpmd.ended().is_some()).unwrap();
    wait_until("ports that are down", 30, || scene.states() == ["down", "down"]).unwrap();
    drop(testpmd);
    // DPDK binds no socket whose file is there.
    std::fs::remove_file(scene.vhost_socket(1)).unwrap();
    let mut testpmd = scene.start_testpmd();
    wait_until("ports that are up again", 30, || scene.states() == ["up", "up"]).unwrap();
    wait_until("a ping through another testpmd", 60, || scene.pings()).unwrap();
    scene.refuses(&["port", "add", "3=vhost-user:/nowhere"], "connected when it starts");

    kill_process(switch.pid(), Signal::TERM).unwrap();
    wait_until("the end of the switch", 30, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(0));
    assert!(!std::path::Path::new(&scene.vhost_socket(2)).exists(), "its own socket is removed");
    assert!(testpmd.quit().unwrap().success());
}

#[test]
fn a_switch_in_a_machine_has_ports_at_open_vswitch() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    if let Err(why) = OpenVswitch::usable() {
        p4shield_need::skip("openvswitch", why);
        return;
    }
    for (ns, interface) in
        [(&scene.host, "p0"), (&scene.host, "p1"), (&scene.left, "eth0"), (&scene.right, "eth0")]
    {
        ns.ip(&format!("link set {interface} mtu 3000")).unwrap();
    }
    let ovs = scene.start_open_vswitch();
    let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.args(["switch", "run", &example("programs/router.p4"), "--threads", "2", "--socket"]);
    command.arg(scene.socket()).arg(format!("--port=1=vhost-user:{},mtu=3000", scene.vhost_socket(1)));
    command.arg(format!("--port=2=vhost-user:{},server,mtu=3000,queues=2", scene.vhost_socket(2)));
    let mut switch = scene.start_command(&mut scene.in_machine(&command, &image));
    wait_until("both ports", 30, || scene.states() == ["up", "up"]).unwrap();
    scene.add_routes();
    wait_until("a ping through Open vSwitch and the machine", 60, || scene.pings()).unwrap();
    let long = ["-c3", "-i0.2", "-s2900", "-Mdo", "-W5", "10.9.2.1"];
    run(scene.left.command("ping").args(long)).unwrap();
    let queues = || ovs.appctl(&["dpif-netdev/pmd-rxq-show"]).unwrap();
    let pairs = |port: &str| queues().lines().filter(|line| line.contains(&format!("port: {port} "))).count();
    wait_until("both queues", 20, || (pairs("one"), pairs("two")) == (1, 2)).unwrap();

    // The operator removes a port of Open vSwitch, and adds it again.
    ovs.remove("two").unwrap();
    wait_until("a port that is down", 30, || scene.states() == ["up", "down"]).unwrap();
    assert!(!scene.pings(), "there is no way to the other host");
    scene.add_second(&ovs);
    wait_until("the port that is up again", 30, || scene.states() == ["up", "up"]).unwrap();
    wait_until("a ping through the new port", 60, || scene.pings()).unwrap();

    // Open vSwitch is gone, and comes back.
    kill_process(ovs.pid(), Signal::KILL).unwrap();
    wait_until("ports that are down", 30, || scene.states() == ["down", "down"]).unwrap();
    drop(ovs);
    let mut ovs = scene.start_open_vswitch();
    wait_until("ports that are up again", 60, || scene.states() == ["up", "up"]).unwrap();
    wait_until("a ping through another Open vSwitch", 60, || scene.pings()).unwrap();
    run(scene.left.command("ping").args(long)).unwrap();

    kill_process(switch.pid(), Signal::TERM).unwrap();
    wait_until("the end of the switch", 30, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(0));
    assert!(ovs.stop().unwrap().success(), "{}", ovs.log());
}

#[test]
fn a_switch_killed_while_it_waits_leaves_no_tap() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    let socket = scene.vhost_socket(2);
    let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.args(["switch", "run", &example("programs/router.p4"), "--port", "1=p0", "--socket"]);
    command.arg(scene.socket()).arg(format!("--port=2=vhost-user:{socket},server"));
    let switch = Guarded::spawn(&mut scene.in_machine(&command, &image)).unwrap();
    let is_free = || {
        let made = scene.host.ip("link add link p0 name probe type macvtap mode passthru").is_ok();
        made && scene.host.ip("link del probe").is_ok()
    };
    wait_until("the wait for a switch", 60, || std::path::Path::new(&socket).exists()).unwrap();
    assert!(!is_free(), "it has a tap of the interface");
    assert_eq!(scene.taps(), "", "which is not in the host's network namespace");
    kill_process(switch.pid(), Signal::KILL).unwrap();
    // The kernel ends a network namespace in the background.
    wait_until("the end of the tap", 20, is_free).unwrap();
}

#[test]
fn a_vhost_user_port_that_cannot_be_is_refused_by_name() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    let refused = |command: &mut Command, exit: i32, why: &str| {
        let answer = command.output().unwrap();
        assert!(code(&answer) == exit && stderr(&answer).contains(why), "{why}: {}", stderr(&answer));
    };
    // Neither has a machine started.
    refused(&mut scene.in_machine(&scene.vhost_command(), &image), 1, "vhost1.sock; start the DPDK switch");
    std::fs::write(scene.vhost_socket(1), "").unwrap();
    refused(&mut scene.in_machine(&scene.vhost_command(), &image), 1, "vhost1.sock is no socket");
    let mut wrong = scene.vhost_command();
    wrong.args(["--port", "3=vhost-user:/a,client"]);
    refused(&mut scene.in_machine(&wrong, &image), 3, "port 3: write vhost-user:SOCKET");
    for (setting, why) in [
        ("mtu=9000", "port 3: write mtu=68 to mtu=3818; a packet has to fit into a page"),
        ("queues=2", "port 3: write queues=1 to queues=1, a queue pair for each thread at most; --threads"),
    ] {
        let mut wrong = scene.vhost_command();
        wrong.args(["--port", &format!("3=vhost-user:/a,{setting}")]);
        refused(&mut scene.in_machine(&wrong, &image), 3, why);
    }
    for words in [&[][..], &["--placement", "pipeline"]] {
        let why = "only a switch in a virtual machine has vhost-user ports; add --placement pipeline";
        refused(scene.vhost_command().args(words), 3, why);
    }
}
