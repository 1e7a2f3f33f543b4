//! Controllers of tenants at their own switches, over TLS.

use super::daemon::{Daemon, wait_for_pings};
use super::scene::Scene;
use super::two_tenants;
use p4shield_testbed::process::run;
use p4shield_testbed::{leftover, wait_until};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

const ALICE: [&str; 2] = ["127.0.0.1:16640", "127.0.0.1:16653"];
const BOB: [&str; 2] = ["127.0.0.1:26640", "127.0.0.1:26653"];

/// A tenant's keys, as `ovs-pki` makes them.
struct Keys(PathBuf);

impl Keys {
    /// Copies a tenant's keys into the scene, which may change them.
    fn copy(scene: &Scene, tenant: &'static str) -> Self {
        // Making them takes seconds.
        static MADE: Mutex<BTreeMap<&str, TempDir>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = made.entry(tenant).or_insert_with(|| {
            let folder = leftover::folder("keys").unwrap();
            Self::make(&folder.path().join(tenant));
            folder
        });
        let mut copy = Command::new("cp");
        run(copy.arg("-a").arg(keys.path().join(tenant)).arg(scene.path(tenant))).unwrap();
        Self(scene.path(tenant))
    }

    /// Makes a switch's key and certificate (`sc`), and a controller's (`ctl`), each signed by an authority
    /// of this tenant's.
    fn make(folder: &Path) {
        let keys = Self(folder.to_owned());
        std::fs::create_dir(&keys.0).unwrap();
        for words in [&["init"][..], &["req+sign", "sc", "switch"], &["req+sign", "ctl", "controller"]] {
            keys.pki(words);
        }
        std::fs::copy(keys.0.join("pki/controllerca/cacert.pem"), keys.authorities()).unwrap();
    }

    fn pki(&self, words: &[&str]) {
        let mut pki = Command::new("ovs-pki");
        pki.current_dir(&self.0).args(["--dir=pki", "--log=pki.log"]).args(words);
        let Output { status, stderr, .. } = pki.output().unwrap();
        assert!(status.success(), "ovs-pki {words:?}: {}", String::from_utf8_lossy(&stderr));
    }

    /// The certificates that sign controllers' ones.
    fn authorities(&self) -> PathBuf {
        self.0.join("authorities.pem")
    }

    /// Runs a tool of Open vSwitch as this tenant's controller, for a switch of the tenant with `switch`.
    fn run(&self, scene: &Scene, switch: &Self, words: &[&str]) -> Result<String, String> {
        let Output { status, stdout, stderr } = self.command(scene, switch, words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if status.success() { Ok(text(&stdout)) } else { Err(text(&stderr)) }
    }

    fn command(&self, scene: &Scene, switch: &Self, words: &[&str]) -> Command {
        let mut command = scene.host.command(words[0]);
        command.arg("--private-key").arg(self.0.join("ctl-privkey.pem"));
        command.arg("--certificate").arg(self.0.join("ctl-cert.pem"));
        command.arg("--ca-cert").arg(switch.0.join("pki/switchca/cacert.pem")).args(&words[1..]);
        command
    }
}

/// Two tenants, whose switches have end points.
fn with_controllers() -> Option<(Scene, Keys, Keys)> {
    let scene = two_tenants()?;
    scene.host.ip("link set lo up").unwrap();
    let (alice, bob) = (Keys::copy(&scene, "alice"), Keys::copy(&scene, "bob"));
    configure(&scene, "2", &alice.0, &bob.0);
    Some((scene, alice, bob))
}

fn configure(scene: &Scene, level: &str, alice: &Path, bob: &Path) {
    scene.configure(level, &["alice", "bob"]);
    scene.add_controllers("alice", alice, ALICE);
    scene.add_controllers("bob", bob, BOB);
}

fn wait_for_end_points(daemon: &Daemon<'_>, number: usize) {
    wait_until("end points", 60, || {
        daemon.status()["topology"]["end_points"].as_array().is_some_and(|points| points.len() == number)
            && daemon.problems().is_some_and(|problems| {
                !problems.iter().any(|kind| ["topology_failed", "end_point_down"].contains(&&**kind))
            })
    })
    .unwrap_or_else(|e| panic!("{e}: {}", daemon.ask(&["status"])));
}

/// Words for the database at an end point.
fn database([ovsdb, _]: [&str; 2]) -> String {
    format!("--db=ssl:{ovsdb}")
}

#[test]
fn a_tenants_controllers_reach_its_own_switch_over_tls() {
    let Some((scene, alice, bob)) = with_controllers() else { return };
    let daemon = Daemon::start(&scene);
    wait_for_end_points(&daemon, 4);
    let show = ["ovs-vsctl", "--timeout=10", &database(ALICE), "show"];
    let shown = alice.run(&scene, &alice, &show).unwrap();
    assert!(shown.contains("Port gw-1") && !shown.contains("gw-2"), "{shown}");
    let switch = format!("ssl:{}", ALICE[1]);
    let add = ["ovs-ofctl", "--timeout=10", "add-flow", &switch, "table=9,priority=7,ip,actions=drop"];
    alice.run(&scene, &alice, &add).unwrap();
    let rules = scene.exec("alice").args(["ovs-ofctl", "dump-flows", "br0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&rules.stdout).contains("table=9"), "{rules:?}");
    let text = daemon.ask(&["status"]);
    assert!(text.contains("controllers of switch alice: ovsdb at 127.0.0.1:16640: "), "{text}");
    // A controller that is connected stays so while the same is applied again.
    let watch = ["ovsdb-client", "monitor", &format!("ssl:{}", ALICE[0]), "Open_vSwitch", "Bridge", "name"];
    let mut watching = alice.command(&scene, &alice, &watch).stdout(Stdio::null()).spawn().unwrap();
    let connections = || daemon.ask(&["metrics"]);
    let one = "p4shield_controller_connections{switch=\"alice\",protocol=\"ovsdb\"} 1";
    wait_until("a connection", 20, || connections().contains(one)).unwrap();
    scene.topology("apply");
    daemon.ask(&["reload"]);
    assert!(watching.try_wait().unwrap().is_none() && connections().contains(one));
    watching.kill().unwrap();
    watching.wait().unwrap();
    // The packets' rules are as before.
    wait_for_pings(&scene);
    drop(bob);
}

#[test]
fn only_certificates_of_the_tenants_authorities_get_in() {
    let Some((scene, alice, bob)) = with_controllers() else { return };
    let daemon = Daemon::start(&scene);
    wait_for_end_points(&daemon, 4);
    let show = |at| ["ovs-vsctl".to_owned(), "--timeout=30".to_owned(), database(at), "show".to_owned()];
    let run = |keys: &Keys, switch: &Keys, at| {
        let words = show(at);
        keys.run(&scene, switch, &words.iter().map(|w| &**w).collect::<Vec<_>>())
    };
    run(&bob, &bob, BOB).unwrap();
    let error = run(&bob, &alice, ALICE).unwrap_err();
    assert!(error.contains("unknown ca") || error.contains("database connection failed"), "{error}");
    let openflow = ["ovs-ofctl", "--timeout=30", "show", &format!("ssl:{}", ALICE[1])];
    bob.run(&scene, &alice, &openflow).unwrap_err();
    alice.run(&scene, &alice, &openflow).unwrap();
    for at in ALICE.iter().chain(&BOB) {
        let plain = format!("tcp:{at}");
        let list = scene.host.command("ovsdb-client").args(["--timeout=30", "list-dbs", &plain]).output();
        assert!(!list.unwrap().status.success(), "{at} without TLS");
    }
    // No machine poses as the switch: a controller that expects bob's sees alice's certificate.
    run(&alice, &bob, ALICE).unwrap_err();
    // Several authorities, such as the tenant's and the cloud's.
    let both = [&alice, &bob].map(|keys| std::fs::read_to_string(keys.0.join("pki/controllerca/cacert.pem")));
    let both = both.into_iter().map(Result::unwrap).collect::<String>();
    std::fs::write(alice.authorities(), both).unwrap();
    scene.topology("apply");
    wait_until("the other authority", 20, || run(&bob, &alice, ALICE).is_ok()).unwrap();
    run(&alice, &alice, ALICE).unwrap();
}

#[test]
fn shared_switches_have_no_end_points_of_a_tenant() {
    let Some((scene, alice, bob)) = with_controllers() else { return };
    let daemon = Daemon::start(&scene);
    wait_for_end_points(&daemon, 4);
    for level in ["1", "baseline"] {
        configure(&scene, level, &alice.0, &bob.0);
        daemon.ask(&["reload"]);
        wait_until("the level", 30, || daemon.status()["topology"]["level"] == level).unwrap();
        wait_for_end_points(&daemon, 0);
        let connected = scene.host.inside(|| TcpStream::connect(ALICE[0]));
        assert!(connected.is_err(), "{level}");
        wait_for_pings(&scene);
    }
    configure(&scene, "2", &alice.0, &bob.0);
    daemon.ask(&["reload"]);
    wait_for_end_points(&daemon, 4);
    // Without the table, the switch listens no more.
    scene.configure("2", &["alice", "bob"]);
    daemon.ask(&["reload"]);
    wait_for_end_points(&daemon, 0);
    let listening = || scene.exec("alice").args(["ovs-vsctl", "get-manager"]).output().unwrap().stdout;
    wait_until("no manager", 20, || listening().is_empty()).unwrap();
}

#[test]
fn one_machine_does_not_take_all_connections() {
    let Some((scene, alice, _)) = with_controllers() else { return };
    let daemon = Daemon::start(&scene);
    wait_for_end_points(&daemon, 4);
    let connect = || {
        let stream = scene.host.inside(|| TcpStream::connect(ALICE[0])).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        stream
    };
    let silent: Vec<_> = (0..8).map(|_| connect()).collect();
    let mut ninth = connect();
    ninth.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(ninth.read(&mut [0]).unwrap(), 0, "it is closed");
    for mut stream in &silent {
        assert!(stream.read(&mut [0]).is_err(), "it is open");
    }
    let words = ["ovs-vsctl", "--timeout=30", &database(ALICE), "show"];
    alice.run(&scene, &alice, &words).unwrap_err();
    drop(silent);
    wait_until("a free connection", 20, || alice.run(&scene, &alice, &words).is_ok()).unwrap();
    let metrics = daemon.ask(&["metrics"]);
    let refused = "p4shield_controller_connections_refused_total{switch=\"alice\",protocol=\"ovsdb\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(refused));
    assert!(line.is_some_and(|n| n.parse::<u64>().unwrap() >= 2), "{metrics}");
}

#[test]
fn an_unusable_key_costs_controllers_and_no_packets() {
    let Some((scene, alice, bob)) = with_controllers() else { return };
    std::fs::copy(bob.0.join("sc-privkey.pem"), alice.0.join("sc-privkey.pem")).unwrap();
    let daemon = Daemon::start(&scene);
    wait_until("a problem", 60, || daemon.has_problems(&["topology_failed"])).unwrap();
    let text = daemon.ask(&["status"]);
    assert!(text.contains("sc-privkey.pem is not that of the certificate"), "{text}");
    wait_for_pings(&scene);
    std::fs::write(alice.0.join("sc-privkey.pem"), "no key").unwrap();
    let applied = scene.command("apply").output().unwrap();
    let error = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(error.contains("sc-privkey.pem has no unencrypted private key in PEM"), "{error}");
    wait_for_pings(&scene);
    let show = ["ovs-vsctl", "--timeout=10", &database(BOB), "show"];
    bob.run(&scene, &bob, &show).unwrap();
    // An address that another program has.
    let taken = scene.host.inside(|| std::net::TcpListener::bind("127.0.0.1:36640")).unwrap();
    scene.configure("2", &["alice", "bob"]);
    scene.add_controllers("bob", &bob.0, ["127.0.0.1:36640", BOB[1]]);
    daemon.ask(&["reload"]);
    wait_until("another problem", 60, || daemon.has_problems(&["end_point_down"])).unwrap();
    drop(taken);
    wait_for_end_points(&daemon, 2);
}

#[test]
fn vms_do_not_reach_what_their_switch_listens_on() {
    let Some((scene, ..)) = with_controllers() else { return };
    scene.topology("apply");
    let web = &scene.vms[0].ns;
    for words in [
        "link set lo down",
        "neigh replace 10.0.0.1 lladdr 02:50:34:ff:f0:01 dev eth0",
        "route add 127.0.0.1 via 10.0.0.1 dev eth0",
    ] {
        web.ip(words).unwrap();
    }
    web.inside(|| std::fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1")).unwrap();
    let reach = |seconds| ["timeout", seconds, "bash", "-c", "</dev/tcp/127.0.0.1/6640"];
    let from_vm = web.command("env").args(reach("3")).output().unwrap();
    assert!(!from_vm.status.success());
    let inside = scene.exec("alice").args(reach("30")).output().unwrap();
    assert!(inside.status.success(), "{inside:?}");
}

#[test]
fn ports_have_their_names_in_openstacks_database() {
    let Some(scene) = two_tenants() else { return };
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let name = r#"interface = "bob-web""#;
    let named = text.replacen(name, &format!("{name}\niface_id = \"8d6b\\\",type=x\""), 1);
    assert_ne!(text, named);
    std::fs::write(scene.config(), named).unwrap();
    scene.topology("apply");
    let id = |tenant, port| {
        let get = ["ovs-vsctl", "--if-exists", "get", "interface", port, "external_ids:iface-id"];
        let output = scene.exec(tenant).args(get).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(id("bob", "gw-2"), r#""8d6b\",type=x""#);
    assert_eq!(id("alice", "gw-1"), "", "it has two VMs");
    // What a controller writes stays.
    let set = ["ovs-vsctl", "set", "interface", "gw-1", "external_ids:iface-id=ours"];
    assert!(scene.exec("alice").args(set).status().unwrap().success());
    scene.topology("apply");
    assert_eq!(id("alice", "gw-1"), "ours");
}
