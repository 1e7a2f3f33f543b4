//! Keeps wires attached while their interfaces come, go and change.
//!
//! All that may block (loading programs, binding and closing sockets) happens on this thread, so that the hot one
//! only moves frames. Each side of each wire is brought from how it is to how it should be whenever a link changed,
//! and again a little later while something is in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use p4shield_afxdp::{Mode, Socket, SocketConfig, Umem};
use p4shield_mediator::{AllowedSources, Network, PortSpec, Stages};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config::{Guard, LoopConfig, Side, WireConfig};
use crate::counters::{AttachedStatus, KernelCounters, SideStatus, WireStatus};
use crate::mailbox::{Caller, Jobs};
use crate::system::ethtool;
use crate::system::link::{Event, Link, Monitor};
use crate::system::xdp::{MAX_QUEUES, Program};
use crate::{EngineJob, Error, Result, WireId};

/// Bytes of an Ethernet header with two VLAN tags, which an MTU does not count.
const FRAME_OVERHEAD: u32 = 14 + 8;
/// How soon a side is tried again that could not be attached.
const RETRY: Duration = Duration::from_millis(100);

/// Work for the supervisor's thread.
pub(crate) type SupervisorJob = Box<dyn FnOnce(&mut Supervisor) + Send>;

/// The state of the control thread.
pub(crate) struct Supervisor {
    config: LoopConfig,
    umem: Arc<Umem>,
    engine: Arc<Caller<EngineJob>>,
    monitor: Monitor,
    links: BTreeMap<u32, Link>,
    /// While a list that was asked for is coming: what was heard of since. What was not, at its end, is gone.
    listed: Option<BTreeSet<u32>>,
    /// Whether a list has to be asked for: something was missed.
    missed: bool,
    wires: Vec<Wire>,
    ports: u32,
    stop: bool,
}

struct Wire {
    id: WireId,
    config: WireConfig,
    sides: [WireSide; 2],
}

#[derive(Default)]
struct WireSide {
    attached: Option<Attached>,
    /// Why not, or what is odd.
    remark: Option<String>,
}

/// An interface that is attached; the sockets are with the engine.
struct Attached {
    index: u32,
    queues: u32,
    /// Whether the driver tells how many queues there are; else they were found by trying.
    queues_known: bool,
    program: Program,
}

impl Attached {
    /// Whether the interface has the queues that are served. One whose driver does not tell (a tap) may have got
    /// more since: then frames came for which there was no socket.
    fn serves_all(&self, name: &str) -> bool {
        if self.queues_known {
            return ethtool::receive_queues(name).is_none_or(|n| n.min(MAX_QUEUES) == self.queues);
        }
        self.program.counters().is_ok_and(|c| c.no_socket == 0)
    }
}

impl Supervisor {
    /// Opens the link monitor in the namespace of the calling thread.
    pub(crate) fn new(config: LoopConfig, umem: Arc<Umem>, engine: Arc<Caller<EngineJob>>) -> Result<Self> {
        let listen = || {
            let mut monitor = Monitor::open()?;
            monitor.ask_for_all()?;
            Ok(monitor)
        };
        let monitor = listen().map_err(Error::system("listen to rtnetlink"))?;
        let (links, wires, listed) = (BTreeMap::new(), Vec::new(), Some(BTreeSet::new()));
        Ok(Self { config, umem, engine, monitor, links, listed, missed: false, wires, ports: 0, stop: false })
    }

    /// Works until it is told to stop.
    pub(crate) fn run(&mut self, mut jobs: Jobs<SupervisorJob>) {
        while !self.stop {
            let timeout = self.retry().map(|d| Timespec { tv_sec: 0, tv_nsec: i64::from(d.subsec_nanos()) });
            let mut fds = [PollFd::new(&jobs, PollFlags::IN), PollFd::new(&self.monitor, PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            self.hear();
            self.reconcile();
            for job in jobs.take() {
                job(self);
            }
        }
        for id in self.wires.iter().map(|w| w.id).collect::<Vec<_>>() {
            let _ = self.detach_both(id);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stop = true;
    }

    /// Whether to look again soon though nothing is heard: something is in the way of an interface that is there,
    /// or one may get more queues, which no message tells.
    fn retry(&self) -> Option<Duration> {
        let waits = |w: &Wire, s: Side| match &w.sides[s as usize].attached {
            Some(a) => !a.queues_known,
            None => self.link(w.config.interface(s)).is_some(),
        };
        let any = self.wires.iter().any(|w| Side::ALL.iter().any(|&s| waits(w, s)));
        (any || self.missed).then_some(RETRY)
    }

    fn link(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|l| l.name == name)
    }

    /// Brings the table of links up to date. When something was missed, what was known stays until a new list tells
    /// otherwise: no wire is cut for a message that was lost.
    fn hear(&mut self) {
        let (links, listed) = (&mut self.links, &mut self.listed);
        let complete = self.monitor.receive(|event| match event {
            Event::Is(link) => {
                if let Some(listed) = listed {
                    listed.insert(link.index);
                }
                links.insert(link.index, link);
            }
            Event::Gone(index) => drop(links.remove(&index)),
            Event::ListEnds => {
                if let Some(listed) = listed.take() {
                    links.retain(|index, _| listed.contains(index));
                }
            }
        });
        self.missed |= !matches!(complete, Ok(true));
        if self.missed {
            tracing::warn!("missed changes of interfaces, asking for all of them again");
            // Refused while an earlier list is still coming; `retry` sees to it.
            self.missed = self.monitor.ask_for_all().is_err();
            self.listed = Some(BTreeSet::new());
        }
    }

    fn reconcile(&mut self) {
        for n in 0..self.wires.len() {
            for side in Side::ALL {
                self.reconcile_side(n, side);
            }
        }
    }

    fn reconcile_side(&mut self, n: usize, side: Side) {
        let name = self.wires[n].config.interface(side).to_owned();
        let link = self.link(&name).cloned();
        let attached = self.wires[n].sides[side as usize].attached.as_ref();
        if let Some(a) = attached {
            let is_there = link.as_ref().is_some_and(|l| l.index == a.index);
            if is_there && a.serves_all(&name) {
                let remark = link.and_then(|l| self.check_mtu(&l).err());
                self.remark(n, side, remark.map(|e| format!("{e}; longer frames are dropped and counted")));
                return;
            }
            if let Err(error) = self.detach(n, side, is_there) {
                tracing::error!(interface = name, error = describe(&error), "cannot detach");
            }
        }
        let Some(link) = link else {
            return self.remark(n, side, Some(format!("there is no interface {name}")));
        };
        let result = self.attach(n, side, &link);
        let failed = result.err().map(|e| describe(&e));
        if failed.is_none() {
            let native =
                self.wires[n].sides[side as usize].attached.as_ref().is_some_and(|a| a.program.native());
            tracing::info!(
                interface = name,
                wire = self.wires[n].config.name,
                side = side.name(),
                native,
                "attached"
            );
        }
        self.remark(n, side, failed);
    }

    /// Keeps what there is to say about a side, and says it once.
    fn remark(&mut self, n: usize, side: Side, remark: Option<String>) {
        let wire = &mut self.wires[n];
        let kept = &mut wire.sides[side as usize].remark;
        if let Some(text) = &remark
            && kept.as_ref() != Some(text)
        {
            tracing::warn!(wire = wire.config.name, side = side.name(), "{text}");
        }
        *kept = remark;
    }

    fn check_mtu(&self, link: &Link) -> Result<()> {
        let longest = self.config.memory.max_packet() - FRAME_OVERHEAD;
        if link.mtu <= longest {
            return Ok(());
        }
        Err(Error::Mtu { interface: link.name.clone(), mtu: link.mtu, longest })
    }

    fn check_memory(&self, link: &Link, queues: u32) -> Result<()> {
        let (have, need) = (self.config.memory.frames.into(), self.config.frames_needed(self.ports + queues));
        if need <= have {
            return Ok(());
        }
        Err(Error::Memory { interface: link.name.clone(), have, need })
    }

    fn attach(&mut self, n: usize, side: Side, link: &Link) -> Result<()> {
        self.check_mtu(link)?;
        let told = ethtool::receive_queues(&link.name).map(|n| n.min(MAX_QUEUES));
        self.check_memory(link, told.unwrap_or(1))?;
        let config = &self.wires[n].config;
        let program = Program::attach(link, config.xdp, self.config.memory.max_packet())?;
        self.prepare(link, &program)?;
        let sockets = self.bind(link, config.mode, told)?;
        let queues = sockets.len() as u32;
        self.check_memory(link, queues)?;
        let duplicate = |s: &Socket| s.as_fd().try_clone_to_owned();
        let fds = sockets.iter().map(duplicate).collect::<std::io::Result<Vec<OwnedFd>>>();
        let fds = fds.map_err(Error::system("duplicate a descriptor"))?;
        let id = self.wires[n].id;
        self.engine.run(move |e| e.install(id, side, sockets))??;
        self.ports += queues;
        // Frames are in the fill rings; now they may come.
        let serve = |(fd, queue): (&OwnedFd, u32)| program.serve(queue, fd.as_fd());
        let served = fds.iter().zip(0..).try_for_each(serve);
        let attached = Attached { index: link.index, queues, queues_known: told.is_some(), program };
        self.wires[n].sides[side as usize].attached = Some(attached);
        if let Err(source) = served {
            drop(fds);
            self.detach(n, side, true)?;
            let (step, interface) = ("send frames to the socket", link.name.clone());
            return Err(crate::XdpError::Bpf { step, interface, source }.into());
        }
        Ok(())
    }

    /// Switches off what a program cannot cope with, and keeps the host's own stack out.
    fn prepare(&self, link: &Link, program: &Program) -> Result<()> {
        if !program.sees_tags() {
            self.keep_tags_in_frames(link);
        }
        if !program.native() {
            // Merged packets are longer than frames. Where the driver cannot unmerge they are counted.
            let _ = ethtool::receive_unmerged(&link.name);
        }
        if self.config.guard == Guard::Required {
            let failed = |source| Error::Guard { interface: link.name.clone(), source };
            program.close_guard().map_err(failed)?;
        }
        Ok(())
    }

    /// Binds a socket to each queue; to as many as there are, where the driver does not tell.
    fn bind(&self, link: &Link, mode: Mode, told: Option<u32>) -> Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for queue in 0..told.unwrap_or(MAX_QUEUES) {
            let config = SocketConfig { interface: link.index, queue, ring: self.config.ring, mode };
            match Socket::bind(&self.umem, &config) {
                Ok(socket) => sockets.push(socket),
                Err(e) if told.is_none() && queue > 0 && e.errno() == Some(libc::EINVAL) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(sockets)
    }

    /// Where the XDP program cannot see a tag beside the frame, it is to be left in the frame: by the interface that
    /// receives, and by the one that sends to it, if that is ours to tell.
    fn keep_tags_in_frames(&self, link: &Link) {
        let _ = ethtool::keep_received_tags(&link.name);
        if let Some(peer) = link.peer.and_then(|i| self.links.get(&i)) {
            let _ = ethtool::keep_sent_tags(&peer.name);
        }
    }

    /// Takes an interface out: frames stop, sockets close, then their frames come back.
    fn detach(&mut self, n: usize, side: Side, is_there: bool) -> Result<()> {
        let id = self.wires[n].id;
        let Some(attached) = self.wires[n].sides[side as usize].attached.take() else { return Ok(()) };
        self.ports -= attached.queues;
        tracing::info!(interface = self.wires[n].config.interface(side), is_there, "detached");
        let sockets = self.engine.run(move |e| e.uninstall(id, side))?;
        // Closing may take the kernel a while; only then it is done with the frames.
        let ports: Vec<_> = sockets.into_iter().map(|(port, _closed)| port).collect();
        drop(attached);
        self.engine.run(move |e| e.reclaim(&ports))
    }

    fn detach_both(&mut self, id: WireId) -> Result<()> {
        let Some(n) = self.wires.iter().position(|w| w.id == id) else { return Ok(()) };
        for side in Side::ALL {
            self.detach(n, side, true)?;
        }
        Ok(())
    }

    /// Adds a wire and attaches what is there of it.
    pub(crate) fn add(&mut self, config: WireConfig) -> Result<WireId> {
        self.check(&config)?;
        let (name, specs) = (config.name.clone(), specs(&config, self.wires.len() as u32));
        let id = self.engine.run(move |e| e.add_wire(name, specs))?;
        self.wires.push(Wire { id, config, sides: Default::default() });
        self.hear();
        let n = self.wires.len() - 1;
        for side in Side::ALL {
            self.reconcile_side(n, side);
        }
        Ok(id)
    }

    fn check(&self, config: &WireConfig) -> Result<()> {
        let refuse = |why: String| Err(Error::Wire { wire: config.name.clone(), why });
        let tenants = &self.config.mediator.tenants;
        let tenant = tenants.get(usize::from(config.vm.tenant));
        if tenant.is_none_or(|t| usize::from(config.vm.vm) >= t.vms.len()) {
            return refuse(format!("there is no VM {} of tenant {}", config.vm.vm, config.vm.tenant));
        }
        if config.vm_if == config.switch_if {
            return refuse(format!("{} cannot be both its ends", config.vm_if));
        }
        for name in Side::ALL.map(|s| config.interface(s)) {
            if let Some(w) =
                self.wires.iter().find(|w| Side::ALL.iter().any(|&s| w.config.interface(s) == name))
            {
                return refuse(format!("{name} belongs to wire {} already", w.config.name));
            }
        }
        Ok(())
    }

    /// Takes a wire out. Its interfaces stay closed unless `open`: then the host's own stack may use them again.
    pub(crate) fn remove(&mut self, id: WireId, open: bool) -> Result<()> {
        let Some(n) = self.wires.iter().position(|w| w.id == id) else { return Ok(()) };
        for attached in self.wires[n].sides.iter().filter_map(|s| s.attached.as_ref()).filter(|_| open) {
            let _ = attached.program.open_guard();
        }
        self.detach_both(id)?;
        self.wires.remove(n);
        self.engine.run(move |e| e.remove_wire(id))
    }

    /// How all wires are.
    pub(crate) fn status(&mut self) -> Result<Vec<WireStatus>> {
        let side_status = |wire: &Wire, side: Side| -> Result<SideStatus> {
            let (id, state) = (wire.id, &wire.sides[side as usize]);
            let attached = state.attached.as_ref().map(|a| -> Result<AttachedStatus> {
                let sockets = self.engine.run(move |e| e.statistics(id, side))?;
                let xdp = a.program.counters().unwrap_or_default();
                Ok(AttachedStatus {
                    index: a.index,
                    queues: a.queues,
                    native: a.program.native(),
                    sees_tags: a.program.sees_tags(),
                    kernel: KernelCounters { xdp, sockets },
                })
            });
            let interface = wire.config.interface(side).to_owned();
            Ok(SideStatus { interface, attached: attached.transpose()?, remark: state.remark.clone() })
        };
        let status = |wire: &Wire| {
            let sides = [side_status(wire, Side::Vm)?, side_status(wire, Side::Switch)?];
            Ok(WireStatus { id: wire.id, name: wire.config.name.clone(), sides })
        };
        self.wires.iter().map(status).collect()
    }
}

/// What the mediator is told about each side of a wire.
fn specs(config: &WireConfig, number: u32) -> [PortSpec; 2] {
    let (unowned, network) = (config.others, Network::Unknown);
    let source =
        if config.own_addresses_only { AllowedSources::Only(config.vm) } else { AllowedSources::Any };
    [
        PortSpec { number: 2 * number, stages: Stages::EgressOnly(config.vm), unowned, source, network },
        PortSpec {
            number: 2 * number + 1,
            stages: Stages::IngressOnly(config.vm),
            unowned,
            source: AllowedSources::Any,
            network,
        },
    ]
}

/// An error with its causes, in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}
