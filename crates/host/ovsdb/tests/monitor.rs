//! Tests of the monitor with a real `ovsdb-server`, and with servers that misbehave.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use p4shield_ovsdb::{Error, Kind, Mac, Monitor, State, Switch, read_once};
use p4shield_testbed::process::{find, run};
use p4shield_testbed::{Guarded, leftover, wait_until};
use tempfile::TempDir;

/// A database without a switch, with the schema of the installed package.
struct Database {
    folder: TempDir,
    server: Option<Guarded>,
}

impl Database {
    /// Starts the server. Without the package, prints that the test is skipped and returns `None`.
    fn start() -> Option<Self> {
        let schema = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
        if find("ovsdb-server").is_none() || !schema.exists() {
            p4shield_need::skip("openvswitch", "the package openvswitch-switch is not installed");
            return None;
        }
        let folder = leftover::folder("ovsdb").unwrap();
        run(Command::new("ovsdb-tool").arg("create").args([&folder.path().join("conf.db"), schema])).unwrap();
        let mut database = Self { folder, server: None };
        database.up();
        database.vsctl(&["init"]);
        Some(database)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }

    fn up(&mut self) {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = Command::new(find("ovsdb-server").unwrap());
        command.args([&at("conf.db"), &format!("--remote=punix:{}", at("db.sock")), "--no-chdir"]);
        command.arg(format!("--unixctl={}", at("ctl"))).env("OVS_RUNDIR", self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(Guarded::spawn(&mut command).unwrap());
        wait_until("start of ovsdb-server", 30, || UnixStream::connect(self.socket()).is_ok()).unwrap();
    }

    fn down(&mut self) {
        self.server = None;
    }

    fn vsctl(&self, words: &[&str]) {
        let db = format!("--db=unix:{}", self.socket().display());
        run(Command::new("ovs-vsctl").args([&db, "--no-wait", "--timeout=30"]).args(words)).unwrap();
    }
}

/// Waits until `holds` is true of the monitor's switch, and returns the switch.
fn until(monitor: &Monitor, what: &str, holds: impl Fn(&Switch) -> bool) -> Arc<Switch> {
    wait_until(what, 30, || holds(&monitor.snapshot())).unwrap();
    monitor.snapshot()
}

#[test]
fn changes_of_a_real_database_are_followed() {
    let Some(database) = Database::start() else { return };
    let monitor = Monitor::start(database.socket()).unwrap();
    wait_until("the first answer", 30, || monitor.state() == State::Connected).unwrap();
    database.vsctl(&[
        "set",
        "Open_vSwitch",
        ".",
        "other_config:dpdk-init=true",
        "other_config:dpdk-extra=--no-pci",
    ]);
    database.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    let vhost = ["add-port", "br0", "vh0", "--", "set", "interface", "vh0", "type=dpdkvhostuserclient"];
    let settings = ["options:vhost-server-path=/run/vh0", "external_ids:iface-id=8d6b \"x\""];
    database.vsctl(&[&vhost[..], &settings].concat());
    let devargs = "options:dpdk-devargs=\"net_af_packet0,iface=v0,qpairs=2\"";
    database.vsctl(&["add-port", "br0", "up0", "--", "set", "interface", "up0", "type=dpdk", devargs]);

    let switch = until(&monitor, "the ports", |s| s.interfaces.len() == 3);
    assert!(switch.dpdk && !switch.hw_offload);
    assert_eq!(switch.dpdk_extra.as_deref(), Some("--no-pci"));
    let vhost = switch.interface("vh0").unwrap();
    assert_eq!((&vhost.kind, vhost.iface_id.as_deref()), (&Kind::VhostUserClient, Some("8d6b \"x\"")));
    assert_eq!(vhost.vhost_path.as_deref(), Some("/run/vh0"));
    assert_eq!((vhost.bridge.as_deref(), vhost.datapath.as_deref()), (Some("br0"), Some("netdev")));
    assert_eq!(switch.interface("up0").unwrap().dpdk_device(), Some("net_af_packet0"));
    assert_eq!(switch.interface("br0").unwrap().kind, Kind::Internal);

    // The switch writes these columns once it has opened the port.
    let (status, mac) = ("status={port_no=2}", "mac_in_use=\"02:00:00:00:00:07\"");
    database.vsctl(&["set", "interface", "up0", "ofport=4", "ifindex=9", status, mac, "link_state=up"]);
    let switch = until(&monitor, "the columns of an open port", |s| {
        s.interface("up0").is_some_and(|i| i.ofport.is_some())
    });
    let port = switch.interface("up0").unwrap();
    assert_eq!(
        (port.ofport, port.ifindex, port.dpdk_port, port.link_up),
        (Some(4), Some(9), Some(2), Some(true))
    );
    assert_eq!(port.mac, Some(Mac([2, 0, 0, 0, 0, 7])));

    database.vsctl(&["clear", "interface", "vh0", "external_ids"]);
    database.vsctl(&["set", "Open_vSwitch", ".", "other_config:hw-offload=true"]);
    database.vsctl(&["del-port", "up0"]);
    let switch = until(&monitor, "the removal", |s| s.interface("up0").is_none());
    assert!(switch.hw_offload && switch.interface("vh0").unwrap().iface_id.is_none());
    assert_eq!(read_once(&database.socket(), Duration::from_secs(30)).unwrap(), *switch);
}

#[test]
fn the_last_contents_remain_while_the_database_is_down() {
    let Some(mut database) = Database::start() else { return };
    database.vsctl(&["add-br", "br0"]);
    let monitor = Monitor::start(database.socket()).unwrap();
    until(&monitor, "the bridge", |s| s.interface("br0").is_some());
    database.down();
    wait_until("the loss", 30, || matches!(monitor.state(), State::Lost(_))).unwrap();
    assert!(monitor.snapshot().interface("br0").is_some());
    database.up();
    database.vsctl(&["add-br", "br1"]);
    until(&monitor, "the change made meanwhile", |s| s.interface("br1").is_some());
    assert_eq!(monitor.state(), State::Connected);
}

/// A server whose output a test determines.
struct FakeServer {
    folder: TempDir,
    listener: UnixListener,
}

impl FakeServer {
    fn new() -> Self {
        let folder = leftover::folder("fake-server").unwrap();
        let listener = UnixListener::bind(folder.path().join("db.sock")).unwrap();
        Self { folder, listener }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }

    /// Accepts one client, reads its request and sends `output`.
    fn serve(&self, output: &[u8]) -> UnixStream {
        let (mut client, _) = self.listener.accept().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = read_message(&mut client);
        assert!(request.contains("\"method\":\"monitor\"") && request.contains("external_ids"), "{request}");
        // The client may have closed the connection already.
        let _ = client.write_all(output);
        client
    }
}

/// Reads one message of the client.
fn read_message(client: &mut UnixStream) -> String {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while serde_json::from_slice::<serde_json::Value>(&text).is_err() {
        client.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

const GOOD: &[u8] = br#"{"id":1,"error":null,"result":{"Interface":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f11":
    {"new":{"name":"good","type":"dpdk"}}}}}"#;

#[test]
fn an_invalid_server_is_disconnected_and_tried_again() {
    let server = FakeServer::new();
    let monitor = Monitor::start(server.socket()).unwrap();
    for nonsense in [
        &b"HTTP/1.1 200 OK\r\n\r\n"[..],
        b"{\"id\":1,\"result\":{\"Interface\":7},\"error\":null}",
        b"{\"id\":1,\"result\":null,\"error\":{\"error\":\"unknown database\"}}",
        b"{\"id\":1,\"result\":",
        b"\xff\xfe\x00",
    ] {
        drop(server.serve(nonsense));
        wait_until("the error", 30, || matches!(monitor.state(), State::Lost(_))).unwrap();
        assert_eq!(monitor.snapshot().interfaces, []);
    }
    let client = server.serve(GOOD);
    until(&monitor, "the good answer", |s| s.interface("good").is_some());
    assert_eq!(monitor.state(), State::Connected);
    drop(client);
}

#[test]
fn echoes_are_answered_and_changes_are_signalled() {
    let server = FakeServer::new();
    let monitor = Monitor::start(server.socket()).unwrap();
    let mut client = server.serve(GOOD);
    until(&monitor, "the first answer", |s| s.interface("good").is_some());
    client.write_all(br#"{"method":"echo","params":["ping"],"id":"e7"}"#).unwrap();
    let answer = read_message(&mut client);
    assert!(answer.contains(r#""result":["ping"]"#), "{answer}");
    assert!(!monitor.wait(Some(Duration::ZERO)), "an echo is no change");
    let update = br#"{"method":"update",
"params":["p4shield",{"Interface":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f11":{}}}],"id":null}"#;
    client.write_all(update).unwrap();
    assert!(monitor.wait(Some(Duration::from_secs(30))));
    assert_eq!(monitor.snapshot().interfaces, []);
    assert!(!monitor.wait(Some(Duration::ZERO)), "the change was read");
}

#[test]
fn a_silent_server_blocks_no_caller() {
    let server = FakeServer::new();
    let asked = read_once(&server.socket(), Duration::from_millis(50));
    assert!(matches!(asked, Err(Error::Silent)), "{asked:?}");
    // The monitor ends while it waits for an answer.
    drop(Monitor::start(server.socket()).unwrap());
    let gone = server.socket();
    drop(server);
    let asked = read_once(&gone, Duration::from_secs(1)).unwrap_err();
    assert!(asked.to_string().contains("ovsdb-server"), "{asked}");
    // The monitor ends while it pauses between attempts.
    let monitor = Monitor::start(gone).unwrap();
    wait_until("the error", 30, || matches!(monitor.state(), State::Lost(_))).unwrap();
}
