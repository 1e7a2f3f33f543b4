//! From what is there to what a plan says.

use crate::compartment::{Place, cgroup_name, end_p4_on_host, namespace, stop};
use crate::inside::Machine;
use crate::state::{State, check_reach};
use crate::{TopologyError, host_ports, pairs, processes, room};
use p4shield_compartment::Cgroup;
use p4shield_config::{Config, Datapath, NicSwitchKind, SwitchKind, Topology};
use p4shield_nicswitch::{NicSwitch as _, Software};
use p4shield_qemu::Accelerator;
use p4shield_topology::{Compartment, Numbers, Plan};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// Users that compartments have at most: VLANs number the tenants.
const USERS: u32 = 4096;
/// The first of them, counted from the first user of P4 VMs.
const BEHIND_P4_VMS: u32 = 0x8000;
/// Compartments that are started at a time.
const AT_A_TIME: usize = 4;

/// The host that has the topology.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) binary: PathBuf,
    pub(crate) users: Range<u32>,
    run: PathBuf,
    state: State,
    cgroups: Option<Arc<Cgroup>>,
    /// How QEMU executes instructions here, once it was asked.
    accelerator: Arc<OnceLock<Accelerator>>,
}

/// The changes of an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The compartments that were started.
    pub started: Vec<String>,
    /// The pairs of interfaces that were made, by their end at the NIC switch.
    pub connected: Vec<String>,
    /// The compartments that were removed.
    pub removed: Vec<String>,
    /// Ports that the NIC switch serves from now on, serves otherwise, or serves no more, by interface.
    pub ports: Vec<String>,
    /// Ports of the plan whose interfaces do not exist: apply again once they do.
    pub absent: Vec<String>,
    /// Settings of the host that were raised, as sysctl(8) writes them.
    pub settings: Vec<String>,
}

impl Host {
    /// Describes this host. `binary` is the product's, which starts compartments; `first_user` is that of P4
    /// VMs, which compartments' users are behind; the table has the folders.
    #[must_use]
    pub fn new(binary: PathBuf, first_user: u32, topology: &Topology) -> Self {
        let first = first_user.saturating_add(BEHIND_P4_VMS);
        Self {
            binary,
            users: first..first.saturating_add(USERS),
            run: topology.run.join("switches"),
            state: State(topology.state.clone()),
            cgroups: None,
            accelerator: Arc::default(),
        }
    }

    /// Gives compartments that start from now on cgroups, which limit their memory.
    #[must_use]
    pub fn in_cgroups(self, cgroups: Option<Arc<Cgroup>>) -> Self {
        Self { cgroups, ..self }
    }

    /// Plans what a configuration says, with the numbers of what was applied.
    ///
    /// # Errors
    /// It has no plan on this host.
    pub fn plan(&self, config: &Config) -> Result<Plan, TopologyError> {
        let cores = std::thread::available_parallelism()
            .map_err(|e| TopologyError::Process("count the processor cores", e))?;
        let cores = u32::try_from(cores.get()).unwrap_or(u32::MAX);
        let mut plan = p4shield_topology::plan(config, &self.numbers()?, cores)?;
        let is_open = config.topology.as_ref().is_some_and(|topology| topology.nic_switch.is_none());
        if is_open && !Software::has_traffic_control() {
            plan.nic_switch = NicSwitchKind::Xdp;
        }
        Ok(plan)
    }

    /// Returns the plan that was applied last.
    ///
    /// # Errors
    /// Its file is unreadable.
    pub fn applied(&self) -> Result<Option<Plan>, TopologyError> {
        self.state.read()
    }

    /// Returns the numbers that the plan of last time gave.
    fn numbers(&self) -> Result<Numbers, TopologyError> {
        Ok(self.applied()?.map(|plan| plan.numbers()).unwrap_or_default())
    }

    /// Makes what the plan says, and removes what it does not say. Applying the same again changes nothing.
    /// Switches that the plan replaces carry their tenants' packets until their successors are ready.
    ///
    /// # Errors
    /// The first that went wrong. What was done stays, and the next apply goes on from there.
    pub fn apply(&self, plan: &Plan) -> Result<Applied, TopologyError> {
        self.can_apply()?;
        plan.machine.iter().try_for_each(|machine| check_reach(&machine.image))?;
        let _lock = self.state.lock()?;
        let previous = self.state.read()?;
        // First, so that the next plan has the same numbers, whatever happens to this process.
        self.state.write(plan)?;
        let mut done = Applied::default();
        if plan.switch == SwitchKind::Ovs && plan.datapath != Datapath::Dpdk && plan.machine.is_none() {
            done.settings.extend(room::allow());
        }
        // A card serves its other ports also if it refuses one.
        let prepared = self.prepare_card(plan, &mut done);
        let failed = self.ensure_all(plan, &mut done)?;
        // Also after an error: the other tenants' ports are as planned then.
        let finished = self.take_over(plan, previous.as_ref(), &mut done);
        prepared.and(failed.map_or(finished, Err)).map(|()| done)
    }

    /// Has one switch of the applied plan run again, with its ports. Returns false if the plan has none of
    /// this name. Other tenants' switches are not touched, and may be restored at the same time.
    ///
    /// # Errors
    /// As of [`Self::apply`].
    pub fn restore(&self, name: &str) -> Result<bool, TopologyError> {
        self.can_apply()?;
        let _lock = self.state.lock_part()?;
        let Some(plan) = self.state.read()? else { return Ok(false) };
        let Some(planned) = plan.compartments.iter().find(|c| c.name == name) else { return Ok(false) };
        let user = self.user_of(planned);
        let found = processes::of_users(&(user..user + 1))?.remove(&user).unwrap_or_default();
        let card = self.card(&plan);
        card.map(|mut card| card.apply(&plan.ports())).transpose()?;
        self.ensure(&plan, planned, &found, &Mutex::default())?;
        self.apply_nic_switch(&plan)?;
        if plan.functions.is_empty() {
            pairs::open_outer(planned)?;
        }
        self.place(&plan, planned).announce()?;
        Ok(true)
    }

    /// Has all compartments run. Returns the first one's error, and adds what was done.
    fn ensure_all(&self, plan: &Plan, done: &mut Applied) -> Result<Option<TopologyError>, TopologyError> {
        let found = processes::of_users(&self.users)?;
        let all = Mutex::new(std::mem::take(done));
        let waiting = Mutex::new(plan.compartments.iter());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    while let Some(planned) = locked(&waiting, Iterator::next) {
                        let found = found.get(&self.user_of(planned)).cloned().unwrap_or_default();
                        if let Err(e) = self.ensure(plan, planned, &found, &all) {
                            locked(&failed, |failed| failed.get_or_insert(e).to_string());
                        }
                    }
                });
            }
        });
        *done = locked(&all, std::mem::take);
        // Compartments are ready in any order.
        [&mut done.started, &mut done.connected, &mut done.absent].into_iter().for_each(|names| names.sort());
        Ok(locked(&failed, Option::take))
    }

    /// Has the switches of the plan carry the packets, and removes those that it does not say.
    fn take_over(
        &self,
        plan: &Plan,
        previous: Option<&Plan>,
        done: &mut Applied,
    ) -> Result<(), TopologyError> {
        if plan.compartments.iter().all(|c| c.in_out.is_some()) {
            end_p4_on_host(&self.run.join(Compartment::ON_HOST))?;
        }
        let changes = self.apply_nic_switch(plan)?;
        pairs::stop_others(Some(plan))?;
        self.remove_other_nic_switches(Some(plan))?;
        match host_ports::on_host(Some(plan)) {
            // A NIC switch does it, and the guard would be before the kernel's bridge.
            ports if ports.is_empty() => self.guard().delete()?,
            ports => self.guard().keep(&ports)?,
        }
        done.ports.extend([changes.added, changes.changed, changes.removed].concat());
        done.absent.extend(changes.absent);
        let has_pairs = plan.functions.is_empty();
        let paired = plan.compartments.iter().filter(|_| has_pairs);
        let opened = paired.map(pairs::open_outer).fold(Ok(()), Result::and);
        let announced =
            plan.compartments.iter().map(|c| self.place(plan, c).announce()).fold(Ok(()), Result::and);
        done.removed.extend(self.remove_others(Some(plan))?);
        host_ports::release(previous, Some(plan));
        opened.and(announced)
    }

    /// Removes everything.
    ///
    /// # Errors
    /// The first that went wrong; the next attempt goes on from there.
    pub fn delete(&self) -> Result<Vec<String>, TopologyError> {
        let _lock = self.state.lock()?;
        let removed = self.remove_others(None)?;
        self.remove_other_nic_switches(None)?;
        self.guard().delete()?;
        // What an older release applied is removed as well.
        host_ports::release(self.state.read().unwrap_or_default().as_ref(), None);
        self.state.forget()?;
        Ok(removed)
    }

    fn can_apply(&self) -> Result<(), TopologyError> {
        if !rustix::process::geteuid().is_root() {
            return Err(TopologyError::NotRoot);
        }
        let (first, last) = (self.users.start, self.users.end - 1);
        if p4shield_compartment::first_of(first, USERS) != first {
            return Err(TopologyError::NoUsers { first, last });
        }
        [&self.run, &self.state.databases()].into_iter().try_for_each(|folder| check_reach(folder))
    }

    /// Describes a compartment's virtual machine.
    fn machine(&self, plan: &Plan, planned: &Compartment) -> Option<Machine> {
        let p4shield_topology::Machine { image, qemu, accelerator } = plan.machine.clone()?;
        let probed = || self.accelerator.get_or_init(|| Accelerator::probe(&qemu)).name().to_owned();
        let accelerator = accelerator.unwrap_or_else(probed);
        let ports = pairs::of(planned).map(|(link, mac)| pairs::machine_port(link, mac)).collect();
        Some(Machine { image, qemu, accelerator, memory: planned.memory, ports })
    }

    pub(crate) fn user_of(&self, compartment: &Compartment) -> u32 {
        self.users.start + u32::from(compartment.number)
    }

    pub(crate) fn place<'p>(&'p self, plan: &Plan, planned: &'p Compartment) -> Place<'p> {
        let (run, state) = (self.run.join(&planned.name), self.state.databases().join(&planned.name));
        let cgroups = self.cgroups.as_deref();
        let (switch, dpdk) = (plan.switch, plan.datapath == Datapath::Dpdk);
        let machine = self.machine(plan, planned);
        let has_functions = !plan.functions.is_empty();
        Place {
            planned,
            switch,
            dpdk,
            machine,
            has_functions,
            uid: self.user_of(planned),
            run,
            state,
            cgroups,
        }
    }

    /// Has a compartment run with its interfaces, ports and rules.
    fn ensure(
        &self,
        plan: &Plan,
        planned: &Compartment,
        found: &processes::Processes,
        done: &Mutex<Applied>,
    ) -> Result<(), TopologyError> {
        let place = self.place(plan, planned);
        let (first, is_new) = place.ensure(&self.binary, found)?;
        if is_new {
            locked(done, |done| done.started.push(planned.name.clone()));
        }
        let (namespace, card) = (namespace(first)?, self.card(plan));
        for (link, mac) in pairs::of(planned) {
            let is_new = match (&place.machine, &card) {
                (Some(_), _) => pairs::hand_over(link, namespace.as_fd())?,
                (None, Some(card)) => pairs::ensure_function(card, link, mac, namespace.as_fd())?,
                (None, None) => pairs::ensure(link, mac, namespace.as_fd())?,
            };
            if is_new {
                locked(done, |done| done.connected.push(link.outer.clone()));
            }
        }
        for link in pairs::wires(planned) {
            if pairs::ensure_wire(link)? {
                locked(done, |done| done.connected.push(link.outer.clone()));
            }
        }
        let host_ports::Ports { present, absent } = host_ports::of(plan, planned)?;
        if planned.in_out.is_none() {
            self.guard().close(&present.iter().map(|port| port.interface.clone()).collect())?;
            if plan.switch == SwitchKind::P4 {
                // An interface has one XDP program.
                pairs::stop_others(Some(plan))?;
                self.remove_other_nic_switches(None)?;
            }
        }
        locked(done, |done| done.absent.extend(absent));
        // AF_XDP sockets are bound to interfaces that are up.
        let opens_first = plan.switch == SwitchKind::P4;
        if opens_first {
            pairs::open_inner(planned, namespace.as_fd())?;
        }
        place.configure(plan, present)?;
        if place.machine.is_none() && !opens_first {
            pairs::open_inner(planned, namespace.as_fd())?;
        }
        // Last: a certificate that cannot be read costs no packets. No controller reaches a virtual machine.
        if place.machine.is_none() { place.listen() } else { Ok(()) }
    }

    /// Ends the compartments that are not in the plan, and removes their interfaces and files.
    pub(crate) fn remove_others(&self, plan: Option<&Plan>) -> Result<Vec<String>, TopologyError> {
        let planned: BTreeMap<&str, u32> =
            plan.iter().flat_map(|plan| &plan.compartments).map(|c| (&*c.name, self.user_of(c))).collect();
        let users: BTreeSet<u32> = planned.values().copied().collect();
        if !planned.contains_key(Compartment::ON_HOST) {
            stop(&self.run.join(Compartment::ON_HOST));
        }
        for user in processes::of_users(&self.users)?.into_keys().filter(|user| !users.contains(user)) {
            processes::kill(&(user..user + 1))?;
        }
        pairs::delete_others(plan)?;
        let mut removed = BTreeSet::new();
        for folder in [&self.run, &self.state.databases()] {
            for name in names_in(folder)?.into_iter().filter(|name| !planned.contains_key(&**name)) {
                if let Some(cgroups) = &self.cgroups {
                    cgroups.remove(&cgroup_name(&name));
                }
                let path = folder.join(&name);
                fs::remove_dir_all(&path).map_err(TopologyError::file("remove", path))?;
                removed.insert(name);
            }
        }
        Ok(removed.into_iter().collect())
    }
}

fn locked<T, R>(mutex: &Mutex<T>, act: impl FnOnce(&mut T) -> R) -> R {
    act(&mut mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Returns the names of what is in a folder, which may be missing.
fn names_in(folder: &Path) -> Result<Vec<String>, TopologyError> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(TopologyError::file("list", folder))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<std::io::Result<_>>().map_err(TopologyError::file("list", folder))
}
