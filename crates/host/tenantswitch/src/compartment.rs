//! A switch compartment, from the host's side: its start, its orders, its end.

use crate::inside::{Limits, Machine};
use crate::order::{Answer, Controllers, MAX_ANSWER, Order, PortSettings, Settings};
use crate::processes::{self, Processes};
use crate::state::{make_folder, remove_file};
use crate::{TopologyError, huge_pages, pairs, tls};
use p4shield_compartment::{Cgroup, Group};
use p4shield_config::{Cores, SwitchKind};
use p4shield_socket::{AskError, Client, Patience};
use p4shield_text::chain;
use p4shield_topology::{Compartment, Plan, SwitchPort};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Version of the orders: a compartment of another release is started anew.
const VERSION: u32 = 7;
/// Longest time for a switch to start, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// The same of one in a virtual machine, which boots by emulation on a machine without KVM.
const START_OF_MACHINE: Duration = Duration::from_secs(240);
/// Memory of QEMU beside its machine's: emulation keeps translated code.
const QEMU_MEMORY: u64 = 256 << 20;
/// Longest time for an order.
const ORDER: Patience = Patience { time: Duration::from_secs(60), bytes: MAX_ANSWER };
/// Longest time for a report.
const REPORT: Patience = Patience { time: Duration::from_secs(5), bytes: MAX_ANSWER };
/// Longest time for a compartment to accept a connection.
const ACCEPT: Duration = Duration::from_secs(2);
/// Bytes of the log's end that an error shows.
const SHOWN: usize = 600;

/// A switch compartment on this host.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// Its part of the plan.
    pub(crate) planned: &'a Compartment,
    /// Its switch.
    pub(crate) switch: SwitchKind,
    /// True if its switch forwards with DPDK.
    pub(crate) dpdk: bool,
    /// Its virtual machine; `None`: it is a process.
    pub(crate) machine: Option<Machine>,
    /// True if its interfaces are virtual functions of a network card.
    pub(crate) has_functions: bool,
    /// Its user, which no other process has.
    pub(crate) uid: u32,
    /// Its folder for sockets and the log, which root owns.
    pub(crate) run: PathBuf,
    /// Its folder for the database, which its user owns.
    pub(crate) state: PathBuf,
    /// Where it gets a cgroup; `None`: it has that of the process that starts it.
    pub(crate) cgroups: Option<&'a Cgroup>,
}

/// How a compartment was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Started {
    version: u32,
    uid: u32,
    core: u32,
    on_host: bool,
    #[serde(default)]
    switch: SwitchKind,
    dpdk: bool,
    #[serde(default)]
    huge_pages: u64,
    machine: Option<Machine>,
    /// The same names of interfaces are a pair's otherwise.
    #[serde(default)]
    has_functions: bool,
}

impl Started {
    /// Returns the file of the compartment with this folder.
    fn file(run: &Path) -> PathBuf {
        run.join("started.json")
    }

    /// Returns how the compartment with this folder was started; `None`: it was not, or by another release.
    fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::file(run)).ok()?).ok()
    }
}

impl Place<'_> {
    /// Starts the compartment, unless it runs as the plan says. Returns its first process and whether it was
    /// started.
    ///
    /// # Errors
    /// It does not start; the message has the end of its log.
    pub(crate) fn ensure(&self, binary: &Path, found: &Processes) -> Result<(Pid, bool), TopologyError> {
        let (core, on_host) = (self.planned.core, self.is_on_host());
        let Self { switch, dpdk, uid, has_functions, .. } = *self;
        let machine = self.machine.clone();
        let huge_pages = self.planned.huge_pages;
        let wanted = Started {
            version: VERSION,
            uid,
            core,
            on_host,
            switch,
            dpdk,
            huge_pages,
            machine,
            has_functions,
        };
        let started = Started::read(&self.run);
        if let Some(first) = found.first.filter(|_| started.as_ref() == Some(&wanted))
            && self.has_its_pairs(first)
            && self.order(&Order::Report).is_ok_and(|answer| answer.error.is_none())
        {
            // Its cgroup lost its limits if a daemon ended meanwhile. One that it is not in goes again.
            self.cgroups.map(|cgroups| self.group(cgroups)).transpose()?;
            return Ok((first, false));
        }
        processes::kill(&(self.uid..self.uid + 1))?;
        huge_pages::check(self.planned.huge_pages).map_err(|why| self.failed(&why))?;
        make_folder(&self.run, 0o755)?;
        make_folder(p4shield_socket::folder_of(&self.state), 0o755)?;
        for folder in [&self.switch_folder(), &self.state] {
            make_folder(folder, 0o700)?;
            chown(folder, Some(self.uid), Some(self.uid)).map_err(TopologyError::file("give", folder))?;
        }
        let file = Started::file(&self.run);
        let text = serde_json::to_vec(&wanted).map_err(TopologyError::file("write", &file))?;
        fs::write(&file, text).map_err(TopologyError::file("write", &file))?;
        if self.machine.is_some() {
            pairs::of(self.planned).try_for_each(|(link, _)| pairs::make_for_machine(link))?;
        }
        self.start(binary)?;
        Ok((self.wait()?, true))
    }

    /// Returns whether the compartment has what only a start gives it: the taps that QEMU has open.
    fn has_its_pairs(&self, first: Pid) -> bool {
        let are_there = |namespace: OwnedFd| {
            pairs::of(self.planned).all(|(link, _)| pairs::is_of_machine(link, namespace.as_fd()))
        };
        self.machine.is_none() || namespace(first).is_ok_and(are_there)
    }

    /// Returns whether the switch has the host's network.
    const fn is_on_host(&self) -> bool {
        self.planned.in_out.is_none()
    }

    /// Returns the folder of Open vSwitch's sockets.
    pub(crate) fn switch_folder(&self) -> PathBuf {
        self.run.join("ovs")
    }

    /// Returns the socket of a P4 switch.
    pub(crate) fn p4_socket(&self) -> PathBuf {
        self.run.join("p4-switch")
    }

    fn log(&self) -> PathBuf {
        self.run.join("log")
    }

    /// Starts the process, which enters the sandbox in another one and ends.
    fn start(&self, binary: &Path) -> Result<(), TopologyError> {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(self.log());
        let log = log.map_err(TopologyError::file("open", self.log()))?;
        let control = control(&self.run);
        remove_file(&control)?;
        let socket = bound(&control).map_err(TopologyError::file("make", &control))?;
        let mut command = Command::new(binary);
        command.args(["tenant-switch", "--name", &self.planned.name]);
        command.args(["--uid", &self.uid.to_string(), "--core", &self.planned.core.to_string()]);
        command.arg("--run").arg(self.switch_folder()).arg("--state").arg(&self.state);
        command.args(self.is_on_host().then_some("--on-host"));
        command.args(self.dpdk.then_some("--dpdk"));
        command.args(["--huge-pages", &self.planned.huge_pages.to_string()]);
        if self.switch == SwitchKind::P4 {
            command.arg("--p4").arg(self.p4_socket());
        }
        let machine = self.machine.as_ref().and_then(|machine| serde_json::to_string(machine).ok());
        command.args(machine.iter().flat_map(|machine| ["--machine", machine]));
        // It is removed if the compartment does not start in it.
        let group = self.cgroups.map(|cgroups| self.group(cgroups)).transpose()?;
        command.args(group.iter().flat_map(|group| [OsStr::new("--cgroup"), group.path().as_os_str()]));
        command.env_clear().stdin(socket).stdout(Stdio::null()).stderr(log);
        let status = command.status().map_err(|e| TopologyError::Process("start a switch compartment", e))?;
        if status.success() { Ok(()) } else { Err(self.failed(&self.last_words())) }
    }

    /// Makes its cgroup.
    fn group(&self, cgroups: &Cgroup) -> Result<Group, TopologyError> {
        let processes = u32::try_from(Limits::of(self.dpdk, 0).processes).unwrap_or(u32::MAX);
        // QEMU's own memory is beside the machine's.
        let more = if self.machine.is_some() { QEMU_MEMORY } else { 0 };
        let memory = self.planned.memory.saturating_add(more);
        let limits = p4shield_compartment::Limits {
            memory,
            huge_pages: self.planned.huge_pages,
            cpu_percent: None,
            processes,
        };
        let group = cgroups.group(&cgroup_name(&self.planned.name), &limits);
        group.map_err(|e| TopologyError::Process("make a cgroup for a switch compartment", e))
    }

    /// Waits until the compartment takes orders.
    fn wait(&self) -> Result<Pid, TopologyError> {
        let end = Instant::now() + if self.machine.is_some() { START_OF_MACHINE } else { START };
        loop {
            let answer = self.order(&Order::Report);
            let found = processes::of_users(&(self.uid..self.uid + 1))?;
            let found = found.get(&self.uid).cloned().unwrap_or_default();
            match (answer, found.first) {
                (Ok(Answer { error: None, .. }), Some(first)) => return Ok(first),
                (_, None) => return Err(self.failed(&self.last_words())),
                (answer, _) if Instant::now() > end => {
                    let why = answer.map_or_else(|e| chain(&e), |answer| answer.error.unwrap_or_default());
                    return Err(self.failed(&why));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Gives the switch these ports, and its rules.
    ///
    /// # Errors
    /// It refuses them.
    pub(crate) fn configure(&self, plan: &Plan, ports: Vec<SwitchPort>) -> Result<(), TopologyError> {
        let port =
            |p: SwitchPort| PortSettings { interface: p.interface, number: p.number, iface_id: p.iface_id };
        let (rules, entries) = match self.switch {
            SwitchKind::Ovs => (self.planned.flow_bundle(plan.gateway_mac), Vec::new()),
            SwitchKind::P4 => (String::new(), self.planned.entries(plan.gateway_mac)),
        };
        self.execute(&Order::Configure(Settings {
            bridge: self.planned.bridge(),
            dpdk: self.dpdk,
            is_core_shared: plan.cores == Cores::Shared,
            ports: ports.into_iter().map(port).collect(),
            rules,
            entries,
            outside: Compartment::OUTSIDE,
            announcements: self.planned.announcements().iter().map(hex::encode).collect(),
        }))
    }

    /// Has the switch listen for its tenant's controllers, or no more.
    ///
    /// # Errors
    /// A file of the configuration cannot be read, or the switch refuses it.
    pub(crate) fn listen(&self) -> Result<(), TopologyError> {
        let planned = self.planned.controllers.as_ref();
        let tls = planned.map(tls::read).transpose()?;
        self.execute(&Order::Controllers(Controllers {
            bridge: self.planned.bridge(),
            ovsdb: planned.is_some_and(|c| c.ovsdb.is_some()),
            openflow: planned.is_some_and(|c| c.openflow.is_some()),
            tls,
        }))
    }

    /// Has the switch announce its VMs' addresses in the outside network.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn announce(&self) -> Result<(), TopologyError> {
        self.execute(&Order::Announce)
    }

    fn execute(&self, order: &Order) -> Result<(), TopologyError> {
        let answer = self.order(order).map_err(|e| self.failed(&chain(&e)))?;
        // The switch's own words, made printable.
        answer.error.map_or(Ok(()), |why| Err(self.failed(&p4shield_text::printable(&why))))
    }

    /// Asks how the switch is, for people who wait for it.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) fn report(&self) -> Result<Answer, AskError> {
        Client::connect_within(&control(&self.run), ACCEPT)?.ask(&Order::Report, REPORT)
    }

    /// Sends an order.
    fn order(&self, order: &Order) -> Result<Answer, AskError> {
        Client::connect_within(&control(&self.run), ACCEPT)?.ask(order, ORDER)
    }

    fn failed(&self, why: &str) -> TopologyError {
        TopologyError::Compartment { name: self.planned.name.clone(), why: why.to_owned() }
    }

    /// Returns the end of its log, which the switch wrote.
    fn last_words(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let shown = &log[log.len().saturating_sub(SHOWN)..];
        let text = String::from_utf8_lossy(shown);
        let words = p4shield_text::printable(text.trim());
        if words.is_empty() { "it ended without a message".to_owned() } else { format!("it ended: {words}") }
    }
}

/// Returns the name of a compartment's cgroup, which no P4 VM's begins with.
pub(crate) fn cgroup_name(compartment: &str) -> String {
    format!("switch-{compartment}")
}

/// Ends a switch on the host whose compartment has this folder, if it answers.
pub(crate) fn stop(run: &Path) {
    // Whatever happens, its processes are killed next.
    let _ = Client::connect_within(&control(run), ACCEPT)
        .and_then(|mut client| client.ask::<Answer>(&Order::Stop, ORDER));
}

/// Ends a P4 switch on the host whose compartment has this folder: its XDP programs are where the NIC switch
/// attaches its own.
pub(crate) fn end_p4_on_host(run: &Path) -> Result<(), TopologyError> {
    let Some(Started { uid, switch: SwitchKind::P4, .. }) = Started::read(run) else { return Ok(()) };
    stop(run);
    processes::kill(&(uid..uid + 1))
}

/// Returns the socket of a compartment's orders.
pub(crate) fn control(run: &Path) -> PathBuf {
    run.join("control")
}

/// Opens the network namespace of a process.
pub(crate) fn namespace(pid: Pid) -> Result<OwnedFd, TopologyError> {
    let path = format!("/proc/{}/ns/net", pid.as_raw_pid());
    File::open(&path).map(OwnedFd::from).map_err(TopologyError::file("open", path))
}

/// Makes a socket, on which the compartment listens once it is ready.
fn bound(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(socket)
}
