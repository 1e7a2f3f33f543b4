//! Placement `pipeline` in a virtual machine, by emulation.

use super::{Scene, code, example, stderr, wait_until};
use p4shield_testbed::Guarded;
use p4shield_testbed::guest::{p4vm_image, switch_image};
use p4shield_testbed::process::children;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns true without QEMU, which it reports.
pub(super) fn lacks_qemu() -> bool {
    let found = p4shield_qemu::QemuVersion::of(Path::new(p4shield_qemu::PROGRAM));
    found.is_err_and(|why| {
        p4shield_need::skip("qemu", why);
        true
    })
}

/// Returns the image, where QEMU can start machines.
pub(super) fn image() -> Option<PathBuf> {
    (!lacks_qemu()).then(|| switch_image().unwrap())
}

impl Scene {
    /// Starts the example in a machine, with no other capabilities than the service has.
    fn start_machine(&self, image: &Path) -> Guarded {
        let run = self.run_command(&["--metrics", "127.0.0.1:9465"]);
        self.start_command(&mut self.in_machine(&run, image))
    }

    /// Returns a command that runs a switch, in a machine and with no other capabilities than the service
    /// has.
    pub(super) fn in_machine(&self, run: &Command, image: &Path) -> Command {
        let mut command = self.host.command("setpriv");
        command.arg(format!("--bounding-set=-all{}", capabilities())).arg("--no-new-privs");
        command.arg(run.get_program()).args(run.get_args()).args(["--placement", "pipeline"]);
        command.args(["--compartment", "vm", "--accelerator", "tcg", "--image"]).arg(image);
        command
    }

    /// Returns the taps of the host's interfaces.
    pub(super) fn taps(&self) -> String {
        self.host.ip("-br link show type macvtap").unwrap()
    }
}

/// Returns the capabilities of the unit and of what its page adds for machines, as `setpriv` has them.
fn capabilities() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let list = |file: &str, section: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let rest = text.split(section).nth(1).unwrap().split("CapabilityBoundingSet=").nth(1).unwrap();
        rest.split(['`', '\n']).next().unwrap().to_lowercase()
    };
    let unit = list("packaging/systemd/p4shield-switch@.service", "[Service]");
    let further = list("docs/how-to/switch-service.md", "## In a virtual machine");
    let names = unit.split_whitespace().chain(further.split_whitespace());
    names.map(|name| format!(",+{}", name.strip_prefix("cap_").unwrap())).collect()
}

/// Returns the process of QEMU that this one started.
pub(super) fn qemu(keeper: Pid) -> Pid {
    let [child] = children(keeper.as_raw_nonzero().get().into())[..] else { panic!("one child") };
    Pid::from_raw(child.try_into().unwrap()).unwrap()
}

fn is_there(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

#[test]
fn a_switch_in_a_machine_forwards_and_answers() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    let mut switch = scene.start_machine(&image);
    let machine = qemu(switch.pid());
    let facts = std::fs::read_to_string(format!("/proc/{}/status", machine.as_raw_nonzero())).unwrap();
    for fact in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(facts.contains(fact), "{facts}");
    }
    assert_eq!(scene.taps(), "", "they are in QEMU's network namespace");
    assert!(!scene.pings(), "no entry routes");
    scene.add_routes();
    wait_until("a ping through the machine", 60, || scene.pings()).unwrap();
    assert_eq!(scene.status()["placement"], "pipeline");
    assert_eq!(scene.status()["ports"][0]["interface"], "p0", "ports have the names of the host");
    let sent = "p4shield_p4switch_sent_packets_total{port=\"2\",interface=\"p1\"}";
    assert!(super::metrics::value(&scene.metrics(), sent) > 0);

    scene.host.ip("link add p2 type veth peer name p3").unwrap();
    scene.refuses(&["port", "add", "3=p2"], "stop it, and give it --port 3=p2");
    scene.asks(&["port", "delete", "2"]);
    assert!(!scene.pings(), "there is no port");
    scene.asks(&["port", "add", "2=p1"]);
    wait_until("a ping through the port that is there again", 60, || scene.pings()).unwrap();

    let router = example("programs/router.p4");
    assert_eq!(scene.asks(&["load", &router]), "keeps its state: RouterIngress.routes\n");
    let unsafe_program = scene.file("wrong.o", "no object");
    assert_eq!(code(&scene.ask(&["load", &unsafe_program])), 3);
    wait_until("a ping through the new program", 60, || scene.pings()).unwrap();

    kill_process(switch.pid(), Signal::TERM).unwrap();
    wait_until("the end of the switch", 30, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(0));
    assert!(!is_there(machine) && !scene.socket().exists());
}

#[test]
fn the_end_of_a_machine_or_its_keeper_ends_both() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    let mut switch = scene.start_machine(&image);
    kill_process(qemu(switch.pid()), Signal::KILL).unwrap();
    wait_until("the end of the switch", 20, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(1));
    assert!(!scene.socket().exists());
    // The kernel ends a network namespace in the background.
    let ends = || scene.host.ip("-d link show p0").unwrap().contains("promiscuity 0");
    wait_until("the end of the taps", 20, ends).unwrap();

    let switch = scene.start_machine(&image);
    let machine = qemu(switch.pid());
    kill_process(switch.pid(), Signal::KILL).unwrap();
    wait_until("the end of QEMU", 20, || !is_there(machine)).unwrap();
    wait_until("the end of the taps", 20, ends).unwrap();
}

#[test]
fn what_a_machine_cannot_have_is_refused_by_name() {
    let (Some(image), Some(scene)) = (image(), Scene::new()) else { return };
    let image = image.display().to_string();
    let run = |words: &[&str]| {
        let mut command = scene.run_command(&["--placement", "pipeline", "--compartment", "vm"]);
        command.args(["--accelerator", "tcg"]).args(words).output().unwrap()
    };
    let refused = |words: &[&str], exit: i32, why: &str| {
        let answer = run(words);
        assert!(code(&answer) == exit && stderr(&answer).contains(why), "{words:?}: {}", stderr(&answer));
    };
    let other = p4vm_image().unwrap().display().to_string();
    refused(&["--image", &other], 3, "is an image of P4 VMs");
    refused(&["--image", "/nowhere"], 3, "cannot read /nowhere/manifest.json");
    refused(&["--image", &image, "--qemu", "/nowhere"], 1, "/nowhere");
    refused(&["--image", &image, "--port", "3=pcap:in.pcap"], 3, "which needs files to read and write");
    refused(&["--image", &image, "--port", "3=nowhere"], 1, "nowhere");
    let entries = scene.file("wrong.txt", "table_add nowhere x 1 =>\n");
    refused(&["--image", &image, "--entries", &entries], 3, "wrong.txt:1: ");
    let answer = scene.run_command(&["--compartment", "vm"]).output().unwrap();
    assert!(code(&answer) == 3 && stderr(&answer).contains("--placement pipeline"), "{}", stderr(&answer));
    assert_eq!(scene.taps(), "");
}
