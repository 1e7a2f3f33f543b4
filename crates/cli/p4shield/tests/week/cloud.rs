//! A cloud: machines, a switch or wires between them, and a daemon.

use crate::common::{code, p4shield, stderr, stdout};
use crate::configuration::{Attachment, Configuration};
use p4shield_testbed::guest::p4vm_image;
use p4shield_testbed::{Guarded, NetNs, OpenVswitch, Switch, leftover, ping, process, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// One cloud at a time: each has a polling switch.
pub(crate) static ONE: Mutex<()> = Mutex::new(());

/// The machines: name, interface on the host, address. The first is no VM.
pub(crate) const MACHINES: [(&str, &str, &str); 5] = [
    ("client", "c0", "10.9.6.9"),
    ("web", "a0", "10.9.6.1"),
    ("app", "a1", "10.9.6.2"),
    ("db", "b0", "10.9.6.3"),
    ("mail", "d0", "10.9.6.4"),
];

/// Drops what comes from a port that does not exist; `@PORT@` makes the programs different.
const PROGRAM: &str = "#include <ubpf_model.p4>
header ethernet_t { bit<96> addresses; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t {}
parser p(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control c(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply { if (hdr.ethernet.type == @TYPE@) { mark_to_drop(); } }
}
control d(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }
ubpf(p(), c(), d()) main;
";

/// The switch of a cloud.
pub(crate) enum Carrier {
    Ovs(OpenVswitch),
    Bridge,
}

/// Fields are dropped in order: the switch before the namespaces that it is connected to.
pub(crate) struct Cloud {
    carrier: Carrier,
    pub(crate) daemon: Guarded,
    attachment: Attachment,
    machines: Vec<NetNs>,
    pub(crate) host: NetNs,
    pub(crate) folder: TempDir,
}

impl Cloud {
    pub(crate) fn start(attachment: Attachment, configuration: &Configuration) -> Self {
        let folder = leftover::folder("week").unwrap();
        let at = |name: &str| folder.path().join(name);
        for (n, kind) in ["0x9998", "0x9999"].into_iter().enumerate() {
            let (source, object) = (at(&format!("program{n}.p4")), at(&format!("program{n}.o")));
            std::fs::write(&source, PROGRAM.replace("@TYPE@", kind)).unwrap();
            let [source, object] = [source, object].map(|p| p.display().to_string());
            let compiled = p4shield(&["compile", &source, "-o", &object]);
            assert_eq!(code(&compiled), 0, "{}", stderr(&compiled));
        }
        let config = at("p4shield.toml");
        std::fs::write(&config, configuration.text(attachment)).unwrap();
        if configuration.machine {
            // As in root's home: the user of the virtual machine cannot enter the folder.
            DirBuilder::new().mode(0o700).create(at("closed")).unwrap();
            std::os::unix::fs::symlink(p4vm_image().unwrap(), at("closed/image")).unwrap();
        }
        let host = NetNs::create("week").unwrap();
        let machines = MACHINES.iter().map(|m| machine(&host, m, attachment)).collect();
        let daemon = daemon(&host, folder.path());
        wait_until("the daemon's socket", 60, || at("p4shield.sock").exists()).unwrap();
        let carrier = carrier(&host, attachment, &config);
        let cloud = Self { carrier, daemon, attachment, machines, host, folder };
        for address in ["10.9.6.1", "10.9.6.3"] {
            cloud.wait("a ping", || cloud.ping(address));
        }
        cloud.wait_settled();
        cloud
    }

    /// Kills the daemon, and starts another.
    pub(crate) fn kill_daemon(&mut self) {
        kill_process(self.daemon.pid(), Signal::KILL).unwrap();
        wait_until("the daemon's end", 60, || self.daemon.ended().is_some()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        self.daemon = daemon(&self.host, self.folder.path());
        let pid = self.daemon.pid().as_raw_pid();
        self.wait("the next daemon", || {
            let status = self.p4shield("status", &["--json"]).1;
            serde_json::from_str::<Value>(&status).is_ok_and(|s| s["pid"] == pid)
        });
    }

    /// Waits until the daemon has no problem. Packets that miss their deadline are none here: on a busy
    /// machine some do at any time, and the phases count them.
    pub(crate) fn wait_settled(&self) {
        self.wait("all problems to end", || {
            let status: Value =
                serde_json::from_str(&self.p4shield("status", &["--json"]).1).unwrap_or_default();
            let problems = status["problems"].as_array();
            problems.is_some_and(|all| all.iter().all(|problem| problem["kind"] == "deadline_missed"))
        });
    }

    pub(crate) fn wait(&self, what: &str, done: impl FnMut() -> bool) {
        wait_until(what, 180, done).unwrap_or_else(|e| panic!("{e}\n{}", self.story()));
    }

    /// Returns the status, and what daemon and switch logged last.
    pub(crate) fn story(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default();
        let said = if let Carrier::Ovs(switch) = &self.carrier { switch.log() } else { String::new() };
        let [daemon, switch] = [&log, &said].map(|log| process::last_lines(log, 20));
        format!("{}\ndaemon: {daemon}\nswitch: {switch}", self.p4shield("status", &[]).1)
    }

    /// Runs a client of the daemon. Returns exit code and output.
    pub(crate) fn p4shield(&self, command: &str, arguments: &[&str]) -> (i32, String) {
        let socket = self.folder.path().join("p4shield.sock").display().to_string();
        let output = p4shield(&[&[command, "--socket", &socket], arguments].concat());
        (code(&output), stdout(&output) + &stderr(&output))
    }

    pub(crate) fn ping(&self, address: &str) -> bool {
        process::run(self.machines[0].command("ping").args(["-c1", "-W2", address])).is_ok()
    }

    /// Pings an address 50 times a second until the value is asked for the result.
    pub(crate) fn pings(&self, address: &str) -> Pings {
        let log = self.folder.path().join(format!("ping-{address}"));
        let mut command = self.machines[0].command("ping");
        command.args(["-i", "0.02", address]).stdout(std::fs::File::create(&log).unwrap());
        Pings { process: Guarded::spawn(&mut command).unwrap(), log }
    }

    /// TCP from the client to bob's VM.
    pub(crate) fn stream(&self) -> [Guarded; 2] {
        let db = &self.machines[3];
        let server = Guarded::spawn(db.command("iperf3").arg("-s").stdout(Stdio::null())).unwrap();
        wait_until("iperf3", 60, || {
            process::run(db.command("ss").args(["-Hltn", "sport", "=", ":5201"])).is_ok_and(|o| !o.is_empty())
        })
        .unwrap();
        let mut client = self.machines[0].command("iperf3");
        client.args(["-c", "10.9.6.3", "-t", "3600", "-b", "100M"]);
        [Guarded::spawn(client.stdout(Stdio::null())).unwrap(), server]
    }

    /// Returns why packets of a tenant were dropped, but for its program and for deadlines, which a busy
    /// machine misses.
    pub(crate) fn drops(&self, tenant: &str) -> String {
        let metrics = self.p4shield("metrics", &[]).1;
        let of = |line: &&str| {
            let excused = ["program", "deadline"].map(|r| format!("reason=\"{r}\""));
            line.starts_with("p4shield_packets_dropped_total")
                && line.contains(&format!("tenant=\"{tenant}\""))
                && !line.ends_with(" 0")
                && !excused.iter().any(|reason| line.contains(reason))
        };
        metrics.lines().filter(of).collect::<Vec<_>>().join("\n")
    }

    /// Returns how many of a tenant's packets were dropped at their deadline.
    pub(crate) fn missed_deadlines(&self, tenant: &str) -> usize {
        let metrics = self.p4shield("metrics", &[]).1;
        let labels = [format!("tenant=\"{tenant}\""), "reason=\"deadline\"".to_owned()];
        let lines = metrics.lines().filter(|line| line.starts_with("p4shield_packets_dropped_total"));
        let of = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        of.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    pub(crate) fn reload(&self, configuration: &Configuration) {
        std::fs::write(self.folder.path().join("p4shield.toml"), configuration.text(self.attachment))
            .unwrap();
        let (code, text) = self.p4shield("reload", &[]);
        assert_eq!(code, 0, "{configuration:?}\n{text}");
    }

    /// Asserts that status and metrics agree with the configuration.
    pub(crate) fn agrees(&self, configuration: &Configuration) {
        assert_eq!(
            self.p4shield("reload", &["--dry-run"]),
            (0, "the configuration is in force already\n".to_owned())
        );
        let mut expected = vec!["bob/db", "alice/web"];
        expected.extend(configuration.app.then_some("alice/app"));
        expected.extend(configuration.carol.then_some("carol/mail"));
        expected.sort_unstable();
        let status = || serde_json::from_str::<Value>(&self.p4shield("status", &["--json"]).1).unwrap();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let vms = |status: &Value| {
            let of = |t: &Value| {
                let name = |v: &Value| format!("{}/{}", text(&t["name"]), text(&v["name"]));
                list(&t["vms"]).iter().map(name).collect::<Vec<_>>()
            };
            let mut vms: Vec<_> = list(&status["tenants"]).iter().flat_map(of).collect();
            vms.sort_unstable();
            vms
        };
        assert_eq!(vms(&status()), expected);
        let metrics = self.p4shield("metrics", &[]).1;
        for vm in ["alice/web", "alice/app", "bob/db", "carol/mail"] {
            let (tenant, name) = vm.split_once('/').unwrap();
            let row = format!("tenant=\"{tenant}\",vm=\"{name}\"");
            assert_eq!(metrics.contains(&row), expected.contains(&vm), "{row}\n{metrics}");
        }
        if self.attachment == Attachment::Wire {
            return;
        }
        self.wait("the roles of the switch's ports", || {
            let status = status();
            let ports = list(&status["switches"][0]["ports"]);
            let role = |interface: &str| {
                let name = self.attachment.port(interface);
                let port = ports.iter().find(|p| text(&p["name"]) == name);
                port.map(|p| format!("{} {}/{}", text(&p["role"]), text(&p["tenant"]), text(&p["vm"])))
            };
            let of =
                |present: bool, vm: &str| if present { format!("vm {vm}") } else { "shared /".to_owned() };
            let uplink = if configuration.uplink { "uplink /" } else { "shared /" };
            let expected = [
                ("c0", uplink.to_owned()),
                ("a0", of(true, "alice/web")),
                ("a1", of(configuration.app, "alice/app")),
                ("b0", of(true, "bob/db")),
                ("d0", of(configuration.carol, "carol/mail")),
            ];
            expected.iter().all(|(port, expected)| role(port).as_ref() == Some(expected))
        });
    }
}

/// Starts a daemon, whose log is appended to that of the one before.
fn daemon(host: &NetNs, folder: &Path) -> Guarded {
    let mut command = host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.arg("run").arg("--config").arg(folder.join("p4shield.toml"));
    let log = std::fs::File::options().create(true).append(true).open(folder.join("daemon.log")).unwrap();
    Guarded::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log)).unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Makes a machine with its link to the host.
fn machine(host: &NetNs, (name, port, address): &(&str, &str, &str), attachment: Attachment) -> NetNs {
    let ns = NetNs::create(name).unwrap();
    host.veth(port, &ns, "eth0").unwrap();
    ns.send_whole_packets("eth0").unwrap();
    ns.ip(&format!("addr add {address}/24 dev eth0")).unwrap();
    if attachment == Attachment::Wire && *name != "client" {
        host.veth(&format!("{port}-sw"), host, &format!("{port}-br")).unwrap();
    }
    ns
}

/// Starts the switch and plugs the machines in.
fn carrier(host: &NetNs, attachment: Attachment, config: &Path) -> Carrier {
    let library = |name: &str| {
        let library = std::env::current_exe().unwrap().with_file_name(name);
        assert!(library.is_file(), "{} was not built", library.display());
        library
    };
    let ports = MACHINES.map(|(_, port, _)| port);
    match attachment {
        Attachment::Xsk => {
            let library = library("libp4shield_xsk.so");
            let environment =
                [("LD_PRELOAD", library.as_os_str()), ("P4SHIELD_CONFIG", OsStr::new(config.as_os_str()))];
            let switch = OpenVswitch::for_afxdp(host, &environment, "0x1").unwrap();
            ports.iter().for_each(|port| switch.add_afxdp(port).unwrap());
            Carrier::Ovs(switch)
        }
        Attachment::Dpdk => {
            let library: PathBuf = library("libp4shield_dpdk.so");
            let setup = OpenVswitch::over_dpdk().env("LD_PRELOAD", library).env("P4SHIELD_CONFIG", config);
            let switch = setup.start(host).unwrap();
            for port in ports {
                switch.add_interface(port, port).unwrap();
            }
            Carrier::Ovs(switch)
        }
        Attachment::Wire => {
            let switch = Switch::bridge(host).unwrap();
            switch.plug(host, "c0").unwrap();
            for port in &ports[1..] {
                switch.plug(host, &format!("{port}-br")).unwrap();
            }
            Carrier::Bridge
        }
    }
}

/// Running pings.
pub(crate) struct Pings {
    process: Guarded,
    log: PathBuf,
}

impl Pings {
    /// Ends them. Returns how many were answered, and how many before the last answer were not.
    pub(crate) fn end(mut self) -> (usize, usize) {
        kill_process(self.process.pid(), Signal::INT).unwrap();
        wait_until("the end of ping", 60, || self.process.ended().is_some()).unwrap();
        let text = std::fs::read_to_string(&self.log).unwrap();
        (ping::answered(&text).len(), ping::lost(&text))
    }
}

pub(crate) fn usable(switch: Result<(), String>) -> bool {
    let switch = switch.map_err(|why| p4shield_need::skip("openvswitch", why)).is_ok();
    let stream = process::find("iperf3").is_some();
    if !stream {
        p4shield_need::skip("iperf3", "iperf3 is not installed");
    }
    switch && stream
}
