//! The back end in software: a program on each port's interface, at one of two hooks of the kernel.
//!
//! All of its state is in the kernel, pinned in a folder of a BPF file system, so that it outlives the
//! process that made it and another one can change it. Its parts, in the order in which [`Software::apply`]
//! makes them:
//!
//! 1. the maps: policy, targets of redirects, counters;
//! 2. for each interface: the program, pinned as a link, which drops everything as long as the policy has no
//!    such port; the guard, which keeps the host's stack off; counters; the target of redirects in XDP;
//! 3. the policy, one map that never changes. A change makes another map and puts it in force with one
//!    write, which returns after the last frame that the old one judged. A frame is so judged by one of two
//!    policies and never by a mixture, and a crash leaves one of them;
//! 4. the removal of all that is no port any more.
//!
//! Each step finds what is already there and leaves it alone, but for programs of another version, which it
//! replaces in place, and maps of another format: the switch is then made anew, while guards drop all.
//!
//! The guard is a filter of traffic control rather than the switch `disable_ipv6`: it stops whatever the
//! host's stack sends into a port, IPv4 and packet sockets included, and belongs to the interface, so no
//! setting of the host's has to be kept and restored. Frames that XDP redirects do not pass traffic control;
//! those of traffic control have a mark by which the guard lets them leave.

mod folder;
mod maps;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use p4shield_afxdp::ethtool;
use p4shield_links::{divide_sent, index_of, stop};
use p4shield_topology::{Port, Role};
use p4shield_xdp::{Interface, InterfaceMonitor};

use crate::{Changes, NicError, NicSwitch, PortCounters, check, policy};
use folder::Folder;
use maps::{Maps, Owner};
use program::{Loaded, Shared};

/// The hook of the kernel at which the switch receives frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// XDP in the driver of each port, which sees a network card's frames before the kernel's stack does.
    /// Between veths it copies each frame, and runs a receive interrupt of each pair that a frame crosses.
    Xdp,
    /// The ingress of traffic control, which is faster between veths. Linux 6.6 with BTF.
    TrafficControl {
        /// True if frames for compartments appear at the other ends of their pairs at once, as if these had
        /// received them: faster, but programs in XDP at these ends do not see them, nor do AF_XDP sockets.
        are_direct: bool,
    },
}

impl Hook {
    const fn are_direct(self) -> bool {
        matches!(self, Self::TrafficControl { are_direct: true })
    }
}

/// The NIC switch of a network namespace: that of the thread which calls its functions.
#[derive(Debug)]
pub struct Software {
    hook: Hook,
    folder: Folder,
    ends: BTreeSet<String>,
}

impl Software {
    /// The folder of a host's NIC switch.
    pub const FOLDER: &str = "/sys/fs/bpf/p4shield-nic";

    /// Returns whether this kernel has the hook in traffic control, has BTF, by which the program finds what
    /// it reads of a packet, and compiles programs, without which they call no functions of the kernel's own.
    #[must_use]
    pub fn has_traffic_control() -> bool {
        // Only the first network namespace has the setting.
        let jit = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").unwrap_or_default();
        let has_types = Path::new("/sys/kernel/btf/vmlinux").exists();
        p4shield_xdp::program::has_ingress() && has_types && jit.trim() != "0"
    }

    /// Returns the switch whose objects are pinned in `folder`, which the first [`NicSwitch::apply`] creates.
    /// A folder is of one hook.
    ///
    /// # Errors
    /// The folder's place is not in a BPF file system.
    pub fn open(hook: Hook, folder: impl Into<PathBuf>) -> Result<Self, NicError> {
        Ok(Self { hook, folder: Folder::at(folder.into())?, ends: BTreeSet::new() })
    }

    /// Names interfaces that are set down when they are no ports any more, before the host's stack gets their
    /// frames: ends of pairs whose other ends' owners may still send.
    #[must_use]
    pub fn with_ends(mut self, ends: BTreeSet<String>) -> Self {
        self.ends = ends;
        self
    }

    /// Loads the programs of interfaces, on all processor cores: the kernel takes about 0.1 s to check one.
    fn prepare_all(&self, interfaces: &[&Interface], renews: bool) -> Vec<Result<Option<Loaded>, NicError>> {
        let threads = available_parallelism().map_or(1, NonZero::get).min(interfaces.len());
        let part = |first: usize| {
            let own = interfaces.iter().enumerate().skip(first).step_by(threads);
            own.map(|(at, interface)| (at, self.prepare(interface, renews))).collect::<Vec<_>>()
        };
        let mut prepared = std::thread::scope(|scope| {
            let started: Vec<_> = (1..threads).map(|first| scope.spawn(move || part(first))).collect();
            let mut prepared = if interfaces.is_empty() { Vec::new() } else { part(0) };
            for thread in started {
                prepared.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            prepared
        });
        prepared.sort_by_key(|(at, _)| *at);
        prepared.into_iter().map(|(_, loaded)| loaded).collect()
    }

    /// Loads a program of an interface's own, which those in XDP are; `None`: it has one already that stays.
    fn prepare(&self, interface: &Interface, renews: bool) -> Result<Option<Loaded>, NicError> {
        if self.hook != Hook::Xdp || (self.is_attached(interface)? && !renews) {
            return Ok(None);
        }
        program::prepare(&self.folder, interface).map(Some)
    }

    fn is_attached(&self, interface: &Interface) -> Result<bool, NicError> {
        Ok(self.folder.attached(&interface.name)? == Some(interface.index))
    }

    /// Makes an interface a port that drops everything until a policy has it. Returns whether it was none.
    /// One that was a port keeps its programs, unless `renews`.
    fn serve(
        &self,
        interface: &Interface,
        loaded: Option<Loaded>,
        shared: &Shared,
        maps: &Maps,
        renews: bool,
    ) -> Result<bool, NicError> {
        let is_new = !self.is_attached(interface)?;
        match loaded {
            Some(loaded) if is_new => loaded.attach(&self.folder, interface)?,
            Some(loaded) => loaded.replace(&self.folder, interface)?,
            None if is_new && self.hook == Hook::Xdp => return Err(self.folder.changed()),
            None if is_new => shared.attach(&self.folder, interface)?,
            None if renews => shared.replace(&self.folder, interface)?,
            None => {}
        }
        shared.close(interface, renews)?;
        maps.add_port(interface.index)?;
        Ok(is_new)
    }

    /// Has the kernel complete what goes to a compartment: XDP and packet sockets there take frames as they
    /// are. In traffic control VMs and the outside may leave checksums and segmentation to the switch.
    fn complete(&self, port: &Port) -> Result<(), NicError> {
        let is_of_compartment = matches!(port.role, Role::Gateway { .. } | Role::InOut { .. });
        if self.hook == Hook::Xdp || !is_of_compartment {
            return Ok(());
        }
        let interface = || port.interface.clone();
        ethtool::complete_sent(&port.interface)
            .map_err(|source| NicError::Checksums { interface: interface(), source })?;
        divide_sent(&port.interface).map_err(NicError::Undivided)
    }

    /// Serves all ports that have an interface. Returns the changes so far, the interfaces that are served,
    /// and the first error of one that cannot be.
    fn serve_all<'p>(
        &self,
        ports: &'p [Port],
        interfaces: &BTreeMap<String, Interface>,
        shared: &Shared,
        maps: &Maps,
    ) -> Result<(Changes, Served<'p>, Option<NicError>), NicError> {
        let (mut changes, mut failure, mut served) = (Changes::default(), None, Served::new());
        let mut present = Vec::new();
        for port in ports {
            match interfaces.get(&port.interface) {
                Some(interface) => present.push((port, interface)),
                None => changes.absent.push(port.interface.clone()),
            }
        }
        let renews = maps.programs()? != shared.version();
        let mut is_renewed = true;
        if renews {
            maps.set_programs(0)?;
        }
        // Before any program passes what is to be completed there.
        let completed: Vec<_> = present.iter().map(|(port, _)| self.complete(port)).collect();
        // Another switch may have carried a port's packets so far. They wait for as little as possible.
        let prepared =
            self.prepare_all(&present.iter().map(|(_, interface)| *interface).collect::<Vec<_>>(), renews);
        for (((port, interface), loaded), completed) in present.into_iter().zip(prepared).zip(completed) {
            let name = || port.interface.clone();
            let serve = |loaded| self.serve(interface, loaded, shared, maps, renews);
            match completed.and(loaded).and_then(serve) {
                Ok(is_new) => {
                    served.insert(&port.interface, interface.index);
                    if is_new {
                        changes.added.push(name());
                    } else if renews {
                        changes.changed.push(name());
                    }
                }
                Err(_) if !is_there(interface) => changes.absent.push(name()),
                Err(error) => {
                    is_renewed &= !self.is_attached(interface)?;
                    failure = failure.or(Some(error));
                }
            }
        }
        if renews && is_renewed {
            maps.set_programs(shared.version())?;
        }
        Ok((changes, served, failure))
    }

    /// Removes what another version of P4 Shield made, and what is left of a network namespace that has
    /// ended. Returns the interfaces of that version, which their guards keep closed.
    fn claim(&self) -> Result<BTreeMap<String, u32>, NicError> {
        let owner = maps::owner(&self.folder)?;
        if owner == Owner::This {
            return Ok(BTreeMap::new());
        }
        let names = self.folder.interfaces()?;
        let mut attached = BTreeMap::new();
        for name in &names {
            attached.extend(self.folder.attached(name)?.map(|index| (name.clone(), index)));
        }
        if owner == Owner::AnotherNamespace && !attached.is_empty() {
            return Err(NicError::Foreign(self.folder.path().to_owned()));
        }
        for name in &names {
            self.folder.detach(name)?;
            self.folder.remove(name)?;
        }
        self.folder.remove_maps(&maps::NAMES)?;
        Ok(attached)
    }

    /// Opens an interface that is in no policy any more to the host's stack.
    fn open_up(&self, name: &str, index: u32, shared: &Shared) -> Result<(), NicError> {
        if self.ends.contains(name)
            && let Err(error) = stop(name)
            && index_of(name).is_ok()
        {
            return Err(NicError::Leaves(error));
        }
        shared.open(name, index)
    }

    /// Removes pins that are in the way of ports: of interfaces that were made again or renamed. Returns
    /// those interfaces whose guard is to be opened, once no policy has them.
    fn remove_stale(&self, keep: &Served<'_>) -> Result<Vec<u32>, NicError> {
        let mut orphans = Vec::new();
        for name in self.folder.interfaces()? {
            let attached = self.folder.attached(&name)?;
            let is_port = attached.is_some_and(|index| keep.values().any(|kept| *kept == index));
            let is_in_the_way = is_port || keep.contains_key(name.as_str());
            if !is_in_the_way || (attached.is_some() && keep.get(name.as_str()).copied() == attached) {
                continue;
            }
            self.folder.detach(&name)?;
            self.folder.remove(&name)?;
            orphans.extend(attached.filter(|_| !is_port));
        }
        Ok(orphans)
    }

    /// Takes the programs, guards, counters and targets away of all but these interfaces.
    fn remove_others(
        &self,
        keep: &Served<'_>,
        shared: &Shared,
        maps: &Maps,
    ) -> Result<Vec<String>, NicError> {
        let mut removed = Vec::new();
        for name in self.folder.interfaces()? {
            if keep.contains_key(name.as_str()) {
                continue;
            }
            // The link goes last: after a crash the next call finds by it what is left to do.
            if let Some(index) = self.folder.attached(&name)? {
                self.open_up(&name, index, shared)?;
                self.folder.detach(&name)?;
            }
            self.folder.remove(&name)?;
            removed.push(name);
        }
        maps.remove_ports_but(&keep.values().copied().collect())?;
        Ok(removed)
    }
}

/// Interfaces that are there, by name.
type Served<'a> = BTreeMap<&'a str, u32>;

impl NicSwitch for Software {
    fn apply(&mut self, ports: &[Port]) -> Result<Changes, NicError> {
        check::check(ports)?;
        if self.hook != Hook::Xdp && !Self::has_traffic_control() {
            return Err(NicError::NoTrafficControl);
        }
        program::quiet();
        self.folder.create()?;
        let _lock = self.folder.lock()?;
        let closed = self.claim()?;
        // Loading makes the maps.
        let shared = Shared::load(self.hook, &self.folder)?;
        let maps = Maps::open(&self.folder)?.ok_or_else(|| self.folder.changed())?;
        let interfaces = interfaces()?;
        let index_of = |port: &'_ Port| interfaces.get(&port.interface).map(|found| found.index);
        // A port that cannot be served stays as it is, but for the policy, which has it without an interface.
        let keep: Served<'_> =
            ports.iter().filter_map(|port| Some((port.interface.as_str(), index_of(port)?))).collect();
        let orphans = self.remove_stale(&keep)?;
        let (mut changes, served, failure) = self.serve_all(ports, &interfaces, &shared, &maps)?;
        let (old, new) = (maps.policy()?, policy::of(ports, &served, self.hook.are_direct()));
        if old.as_ref() != Some(&new) {
            maps.replace_policy(&new)?;
            changes.policy = true;
            let changed = policy::changed(&old.unwrap_or_default(), &new);
            let names = served.iter().filter(|(_, index)| changed.contains(*index));
            changes.changed.extend(names.map(|(name, _)| (*name).to_owned()));
            changes.changed.retain(|name| !changes.added.contains(name));
        }
        for index in orphans {
            shared.open("an interface that was renamed", index)?;
        }
        for (name, index) in closed.iter().filter(|(name, _)| !keep.contains_key(name.as_str())) {
            self.open_up(name, *index, &shared)?;
        }
        changes.removed = self.remove_others(&keep, &shared, &maps)?;
        [&mut changes.added, &mut changes.absent, &mut changes.changed]
            .into_iter()
            .for_each(|names| names.sort());
        changes.changed.dedup();
        failure.map_or(Ok(changes), Err)
    }

    fn counters(&self) -> Result<Vec<PortCounters>, NicError> {
        let maps = match maps::owner(&self.folder)? {
            Owner::This => Maps::open(&self.folder)?,
            Owner::AnotherVersion => None,
            Owner::AnotherNamespace => return Err(NicError::Foreign(self.folder.path().to_owned())),
        };
        let Some(maps) = maps else { return Ok(Vec::new()) };
        let mut counters = Vec::new();
        for name in self.folder.interfaces()? {
            if let Some(index) = self.folder.attached(&name)?
                && let Some(processors) = maps.counters(index)?
            {
                counters.push(PortCounters::sum(&name, &processors));
            }
        }
        Ok(counters)
    }

    fn delete(&mut self) -> Result<(), NicError> {
        if !self.folder.exists() {
            return Ok(());
        }
        program::quiet();
        let _lock = self.folder.lock()?;
        let closed = self.claim()?;
        if let Some(maps) = Maps::open(&self.folder)? {
            // From now on nothing passes; then the programs go, one after the other.
            maps.replace_policy(&policy::Policy::new())?;
            self.remove_others(&Served::new(), &Shared::load(self.hook, &self.folder)?, &maps)?;
        } else if !closed.is_empty() {
            let shared = Shared::load(self.hook, &self.folder)?;
            closed.iter().try_for_each(|(name, index)| self.open_up(name, *index, &shared))?;
        }
        self.folder.delete(&maps::NAMES)
    }
}

/// Returns whether an interface has not gone.
fn is_there(interface: &Interface) -> bool {
    index_of(&interface.name).is_ok_and(|index| index == interface.index)
}

/// Returns the interfaces of this network namespace by name.
fn interfaces() -> Result<BTreeMap<String, Interface>, NicError> {
    let list =
        InterfaceMonitor::open().and_then(|mut monitor| monitor.list()).map_err(NicError::Interfaces)?;
    Ok(list.into_iter().map(|interface| (interface.name.clone(), interface)).collect())
}
