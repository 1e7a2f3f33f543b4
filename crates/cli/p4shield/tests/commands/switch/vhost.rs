//! Ports of a switch in a virtual machine that are vhost-user connections to a DPDK switch, by emulation.

use super::machine::{image, qemu};
use super::{Scene, code, example, stderr, wait_until};
use p4shield_testbed::Testpmd;
use p4shield_testbed::process::run;
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

    fn states(&self) -> [String; 2] {
        [0, 1].map(|port| self.status()["ports"][port]["state"].as_str().unwrap_or_default().to_owned())
    }
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
    for words in [&[][..], &["--placement", "pipeline"]] {
        let why = "only a switch in a virtual machine has vhost-user ports; add --placement pipeline";
        refused(scene.vhost_command().args(words), 3, why);
    }
}
