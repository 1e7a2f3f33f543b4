//! A cloud of one host: Open vSwitch over DPDK, the host daemon with a tenant's P4 VM, the tenant's user VM
//! as a QEMU guest, and a client in a network namespace.

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::deb::cannot_build;
use crate::installed;
use p4shield_agent::page::{INFO_PAGE_SIZE, LOG_PAGE_SIZE};
use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, Guest, NetNs, OpenVswitch, leftover, wait_until};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const GUEST: &str = "10.9.4.2";
const CLIENT: &str = "10.9.4.1";
const GUEST_MAC: &str = "52:54:00:00:04:02";

/// TCP memory above which the tenant sheds load. Linux 6 accounts it in steps of a MiB for each processor.
const THRESHOLD_BYTES: u64 = 3 << 20;

/// Variables that this test sets in the configuration file of the package. Agent and auditor find their
/// pages by the devices' sizes (`pci:auto`), as the file says already.
const CONFIGURATION: [(&str, &str); 4] = [
    ("TENANT", "alice"),
    ("VM", "web"),
    ("AGENT_OPTIONS", "--interface eth0 --tcp-threshold 3MiB"),
    ("AUDIT_OPTIONS", "--log-interval-ms 200 --expect-age-limit 3000 --hold-ms 1500"),
];

/// The line added to it: the log shows the reason if the kernel refuses the tap.
const LOG: &str = "P4SHIELD_LOG=info,libbpf=debug";

/// PCI slots of the ivshmem devices of info page and log page.
const PAGES: [u8; 2] = [5, 6];

/// How the switch treats packets to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// The switch forwards them without the library; the P4 VM runs all the same.
    No,
    /// The preloaded library submits them to the tenant's program.
    Dpdk,
}

pub(crate) struct Cloud {
    pub(crate) guest: Guest,
    pub(crate) switch: OpenVswitch,
    pub(crate) client: NetNs,
    daemon: Option<Guarded>,
    host: NetNs,
    dir: TempDir,
}

impl Cloud {
    /// Checks whether this machine can run the cloud.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn usable(attached: Attached) -> Result<(), String> {
        if attached == Attached::Dpdk && !library().is_file() {
            return Err(format!("{} was not built", library().display()));
        }
        if let Some(why) = cannot_build(&[]) {
            return Err(why);
        }
        OpenVswitch::usable()?;
        Guest::usable()
    }

    pub(crate) fn start(attached: Attached) -> Self {
        leftover::sweep();
        let dir = leftover::folder("cloud").unwrap();
        let (host, client) = (NetNs::create("host").unwrap(), NetNs::create("client").unwrap());
        host.veth("uplink0", &client, "eth0").unwrap();
        client.send_whole_packets("eth0").unwrap();
        client.ip(&format!("addr add {CLIENT}/24 dev eth0")).unwrap();
        prepare(dir.path(), attached);
        let daemon = start_daemon(dir.path(), &host);
        let at = |name: &str| dir.path().join(name);
        let setup = Guest::setup()
            .file(installed::KEY, &std::fs::read(at("alice.key")).unwrap())
            .options(definition(dir.path(), attached));
        let packages = installed::packages().iter();
        let setup = packages.fold(setup, |setup, (name, bytes)| setup.package(name, bytes));
        let mut guest = setup.start().unwrap();
        let mut setup = OpenVswitch::over_dpdk();
        if attached == Attached::Dpdk {
            setup = setup.env("LD_PRELOAD", library()).env("P4SHIELD_CONFIG", at("p4shield.toml"));
        }
        let switch = setup.start(&host).unwrap();
        switch.add_interface("uplink", "uplink0").unwrap();
        switch.add_vhost_client("vm0", &at("vm0.sock")).unwrap();
        guest.wait_booted().unwrap();
        installed::install(&mut guest, &CONFIGURATION, LOG);
        guest.must(&format!("ip addr add {GUEST}/24 dev eth0 && ip link set eth0 up")).unwrap();
        Self { guest, switch, client, daemon: Some(daemon), host, dir }
    }

    /// Starts the agent in the guest, and waits until the P4 VM knows what it publishes.
    pub(crate) fn start_agent(&mut self) {
        let agent = installed::line(&mut self.guest, "p4shield-agent", "");
        self.guest.must(&format!("{agent} >/tmp/agent.log 2>&1 &")).unwrap();
        self.wait_known();
    }

    /// Starts the auditor in the guest, and waits until it accounts for every packet.
    pub(crate) fn start_audit(&mut self) {
        let audit = installed::line(&mut self.guest, "p4shield-audit@", "eth0");
        let audit = format!("{audit} >/tmp/audit.json 2>/tmp/audit.log");
        let watched = "{ echo $! >/tmp/audit.pid; wait $!; echo $? >/tmp/audit.code; }";
        self.guest
            .must(&format!("rm -f /tmp/audit.code /tmp/audit.json; {{ {audit} & {watched} }} &"))
            .unwrap();
        // A kernel that refuses the tap leaves an audit by counters, which proves less.
        let watching = "grep -q '\"event\":\"started\"' /tmp/audit.json";
        let guest = &mut self.guest;
        let started = wait_until("the auditor's start", 60, || guest.run(watching, 30).unwrap().code == 0);
        if let Err(why) = started {
            panic!("{why}\n{}", guest.must("cat /tmp/audit.json /tmp/audit.log").unwrap());
        }
        let said = guest.must("cat /tmp/audit.json; grep -B30 'END PROG LOAD' /tmp/audit.log; true").unwrap();
        assert!(said.contains("\"blind\":\"\""), "the auditor has no tap: {said}");
        let aligned = "grep -c '\"notice\":\"aligned\"' /tmp/audit.json";
        let guest = &mut self.guest;
        let both = || guest.run(aligned, 30).unwrap().output.trim() == "2";
        if wait_until("the auditor to account for packets", 60, both).is_err() {
            let said = self.guest.must("cat /tmp/audit.json /tmp/audit.log").unwrap();
            panic!("the auditor is not certain of anything\n{said}\n{:#}", self.status());
        }
    }

    /// Ends the audit and returns its summary.
    pub(crate) fn end_audit(&mut self) -> Value {
        self.guest.must("kill $(cat /tmp/audit.pid)").unwrap();
        let guest = &mut self.guest;
        wait_until("end of the audit", 60, || guest.run("cat /tmp/audit.code", 30).unwrap().code == 0)
            .unwrap();
        let mut summary = Value::Null;
        let mut read = || {
            // The file exists before the exit code is in it.
            let said = guest.must("cat /tmp/audit.code; tail -n1 /tmp/audit.json").unwrap();
            let (code, last) = said.split_once('\n').unwrap_or_default();
            summary = serde_json::from_str(last).unwrap_or_default();
            code.trim().parse().is_ok_and(|code: i64| summary["exit_code"] == code)
        };
        if wait_until("the audit's summary", 30, &mut read).is_err() {
            let all =
                self.guest.must("ls -l /tmp; cat /tmp/audit.code /tmp/audit.log /tmp/audit.json").unwrap();
            panic!("the audit says nothing at its end: {summary:#}\n{all}");
        }
        summary
    }

    /// Starts two TCP servers in the guest: port 7 echoes, port 9 accepts and never reads.
    pub(crate) fn serve(&mut self) {
        self.guest.must("sysctl -w net.ipv4.tcp_rmem='4096 2097152 4194304'").unwrap();
        for (port, program) in [(7, "cat"), (9, "sleep 3600")] {
            self.guest.must(&format!("nc -ll -p {port} -e {program} >/dev/null 2>&1 &")).unwrap();
        }
    }

    /// Ends the guest's connections of port 9, which hold its memory, until the memory is free: some are
    /// accepted only now.
    pub(crate) fn stop_hogs(&mut self) {
        let guest = &mut self.guest;
        let mut said = String::new();
        let free = || {
            let line = "killall sleep 2>/dev/null; grep ^TCP: /proc/net/sockstat";
            said = guest.must(line).unwrap();
            let pages: Option<u64> = said.split_whitespace().last().and_then(|n| n.parse().ok());
            pages.is_some_and(|n| n * 4096 < THRESHOLD_BYTES)
        };
        wait_until("the guest's TCP memory to be free", 60, free).unwrap_or_else(|e| panic!("{e}: {said}"));
    }

    /// Makes the switch send a packet to the guest that it received from no port.
    pub(crate) fn smuggle(&self, number: u8) {
        let port = self.switch.vsctl(&["get", "Interface", "vm0", "ofport"]).unwrap();
        let packet: String = smuggled(number).iter().map(|b| format!("{b:02x}")).collect();
        let message = format!("in_port=controller packet={packet} actions=output:{}", port.trim());
        self.switch.ofctl("packet-out", &[&message]).unwrap();
    }

    /// Restarts the host daemon while the guest runs on with its devices.
    pub(crate) fn restart_daemon(&mut self) {
        drop(self.daemon.take());
        self.daemon = Some(start_daemon(self.dir.path(), &self.host));
    }

    /// Waits until the P4 VM knows what the guest publishes.
    pub(crate) fn wait_known(&mut self) {
        let known = || self.vm()["info"]["status"] == "known";
        if wait_until("information from the guest", 60, known).is_err() {
            let log = self.guest.must("cat /tmp/agent.log").unwrap();
            panic!("the P4 VM knows nothing of the guest\n{log}\n{:#}", self.status());
        }
    }

    /// Returns the output of `p4shield status --json`.
    pub(crate) fn status(&self) -> Value {
        let socket = self.dir.path().join("p4shield.sock");
        let said = p4shield(&["status", "--json", "--socket", socket.to_str().unwrap()]);
        serde_json::from_slice(&said.stdout).unwrap_or_default()
    }

    /// Returns the status of the guest's VM.
    pub(crate) fn vm(&self) -> Value {
        self.status()["tenants"][0]["vms"][0].clone()
    }

    /// Returns whether the guest answers a ping.
    pub(crate) fn ping(&self) -> bool {
        run(self.client.command("ping").args(["-c1", "-W1", GUEST])).is_ok()
    }

    /// Connects from the client to the guest within a second.
    pub(crate) fn connect(&self, port: u16) -> Option<TcpStream> {
        let to = (GUEST.parse::<std::net::IpAddr>().unwrap(), port).into();
        let stream = self.client.inside(|| TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok())?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Some(stream)
    }

    /// Connects from the client to the guest, with retries.
    pub(crate) fn connected(&self, port: u16) -> TcpStream {
        let mut stream = None;
        wait_until("a connection to the guest", 60, || {
            stream = self.connect(port);
            stream.is_some()
        })
        .unwrap_or_else(|e| panic!("{e}\n{:#}\n{}", self.status(), self.switch.log()));
        stream.unwrap()
    }
}

/// Returns an IPv4 packet to the guest that is not TCP: the program would pass it.
fn smuggled(number: u8) -> Vec<u8> {
    let mut packet = vec![0x52, 0x54, 0, 0, 4, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut header = [0x45, 0, 0, 46, 0, number, 0, 0, 64, 253, 0, 0, 10, 9, 4, 1, 10, 9, 4, 2];
    p4shield_frame::ipv4::set_checksum(&mut header);
    packet.extend(header);
    packet.extend([number; 26]);
    packet
}

/// Runs the binary on the host.
fn p4shield(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_p4shield")).args(arguments).output().unwrap()
}

/// Returns the library to preload; cargo puts it beside the tests.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libp4shield_dpdk.so")
}

/// Returns the options of `p4shield vm devices` for the guest, with what this test fixes beyond them.
fn definition(dir: &Path, attached: Attached) -> Vec<String> {
    let at = |name: &str| dir.join(name).display().to_string();
    let (config, socket) = (at("p4shield.toml"), at("vm0.sock"));
    let mut arguments = vec!["vm", "devices", "alice/web", "--qemu", "--memory", "512MiB"];
    arguments.extend(["--mac", GUEST_MAC, "--config", &config]);
    if attached == Attached::No {
        // The configuration has no port.
        arguments.extend(["--socket", &socket]);
    }
    let ran = p4shield(&arguments);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let mut slots = PAGES.iter();
    let options = String::from_utf8(ran.stdout).unwrap();
    let pairs = options.lines().map(|line| line.split_once(' ').unwrap());
    let fixed = pairs.flat_map(|(option, value)| {
        let more = match value.split(',').next() {
            Some("ivshmem-plain") => format!(",addr={:#x}", slots.next().unwrap()),
            // Without KVM, QEMU 7.2 follows a null pointer when a guest masks a vector of this device.
            Some("virtio-net-pci") => ",romfile=,vectors=0".to_owned(),
            _ => String::new(),
        };
        [option.to_owned(), format!("{value}{more}")]
    });
    fixed.collect()
}

/// Writes key, program and configuration.
fn prepare(dir: &Path, attached: Attached) {
    let at = |name: &str| dir.join(name).display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/programs/tcp_guard.p4");
    for arguments in [
        vec!["keygen", &at("alice.key")],
        vec!["compile", source.to_str().unwrap(), "-o", &at("tcp_guard.o")],
    ] {
        let out = p4shield(&arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let (attachment, ports) = match attached {
        Attached::No => ("wire", ""),
        Attached::Dpdk => ("dpdk", include_str!("ports.toml")),
    };
    let config = include_str!("cloud.toml").replace("@ATTACHMENT@", attachment).replace("@PORTS@", ports);
    let config = config.replace("@DIR@", &dir.display().to_string());
    std::fs::write(dir.join("p4shield.toml"), config).unwrap();
    // A hypervisor creates the pages before the daemon starts; the daemon then leaves them when it ends.
    for (name, size) in [("info.page", INFO_PAGE_SIZE), ("log.page", LOG_PAGE_SIZE)] {
        File::create(dir.join(name)).unwrap().set_len(size as u64).unwrap();
    }
}

/// Starts `p4shield run` and waits until the P4 VM is ready.
fn start_daemon(dir: &Path, host: &NetNs) -> Guarded {
    let log = File::options().append(true).create(true).open(dir.join("run.log")).unwrap();
    let mut command = host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.arg("run").arg("--config").arg(dir.join("p4shield.toml"));
    let daemon = Guarded::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log)).unwrap();
    let socket = dir.join("p4shield.sock").display().to_string();
    let ready = || {
        let status: Value =
            serde_json::from_slice(&p4shield(&["status", "--json", "--socket", &socket]).stdout)
                .unwrap_or_default();
        status["tenants"][0]["state"] == "running"
    };
    wait_until("start of the P4 VM", 60, ready).unwrap_or_else(|e| {
        panic!("{e}\n{}", std::fs::read_to_string(dir.join("run.log")).unwrap_or_default())
    });
    daemon
}
