//! Keeps wires attached while their interfaces come, go and change.
//!
//! Everything that may block (loading programs, binding and closing sockets) happens on this thread, so
//! that the hot thread only moves frames. Each side of each wire is attached or detached as necessary
//! whenever an interface changed, and retried after a while if that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use p4shield_afxdp::{Socket, SocketConfig, Umem, ethtool};
use p4shield_mediator::{self as mediator, AllowedSources, Counters, Network, PortSpec, Stages};
use p4shield_xdp::{
    FRAME_OVERHEAD, Interface, InterfaceEvent, InterfaceMonitor, MAX_QUEUES, XdpProgram, offload,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config::{Guard, LoopConfig, WireConfig, WireSide};
use crate::counters::{AttachedStatus, KernelCounters, SideStatus, WireStatus};
use crate::mailbox::{Caller, Jobs};
use crate::{EngineJob, Error, Result, WireId};

/// Time until a side that could not be attached is retried.
const RETRY: Duration = Duration::from_millis(100);

/// Work for the supervisor's thread.
pub(crate) type SupervisorJob = Box<dyn FnOnce(&mut Supervisor) + Send>;

impl Caller<SupervisorJob> {
    /// Runs `f` on the control thread.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Supervisor) -> R + Send + 'static,
    ) -> Result<R> {
        self.call(|reply| -> SupervisorJob {
            Box::new(move |supervisor| {
                let _ = reply.send(f(supervisor));
            })
        })
    }
}

/// The state of the control thread.
pub(crate) struct Supervisor {
    config: LoopConfig,
    umem: Arc<Umem>,
    engine: Arc<Caller<EngineJob>>,
    monitor: InterfaceMonitor,
    interfaces: BTreeMap<u32, Interface>,
    /// While a requested list is coming: the interfaces listed so far. The others are gone at its end.
    listed: Option<BTreeSet<u32>>,
    /// Whether a list must be requested because messages were lost.
    missed: bool,
    wires: Vec<SupervisedWire>,
    ports: u32,
    stop: bool,
}

struct SupervisedWire {
    id: WireId,
    config: WireConfig,
    sides: [SideState; 2],
}

#[derive(Default)]
struct SideState {
    attached: Option<Attached>,
    /// Reason why the interface is not attached, or another notice.
    notice: Option<String>,
}

/// An attached interface, whose sockets the engine has.
struct Attached {
    index: u32,
    queues: u32,
    /// Whether the driver reports the number of queues; otherwise it was found by trying.
    queues_known: bool,
    program: XdpProgram,
}

impl Attached {
    /// Returns whether every queue of the interface has a socket. For a driver that does not report the
    /// number (a tap), a frame without a socket shows that there are more queues.
    fn serves_all(&self, name: &str) -> bool {
        if self.queues_known {
            return ethtool::receive_queues(name).is_none_or(|n| n.min(MAX_QUEUES) == self.queues);
        }
        self.program.counters().is_ok_and(|c| c.no_socket == 0)
    }
}

impl Supervisor {
    /// Opens the interface monitor in the namespace of the calling thread.
    pub(crate) fn new(config: LoopConfig, umem: Arc<Umem>, engine: Arc<Caller<EngineJob>>) -> Result<Self> {
        let listen = || {
            let mut monitor = InterfaceMonitor::open()?;
            monitor.request_all()?;
            Ok(monitor)
        };
        let monitor = listen().map_err(Error::system("listen to rtnetlink"))?;
        let (interfaces, wires, listed) = (BTreeMap::new(), Vec::new(), Some(BTreeSet::new()));
        Ok(Self {
            config,
            umem,
            engine,
            monitor,
            interfaces,
            listed,
            missed: false,
            wires,
            ports: 0,
            stop: false,
        })
    }

    /// Runs until [`Self::stop`].
    pub(crate) fn run(&mut self, mut jobs: Jobs<SupervisorJob>) {
        while !self.stop {
            let timeout = self.retry().map(|d| Timespec { tv_sec: 0, tv_nsec: i64::from(d.subsec_nanos()) });
            let mut fds = [PollFd::new(&jobs, PollFlags::IN), PollFd::new(&self.monitor, PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            self.receive_events();
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

    /// Returns the time until the next check without an event: if an interface that exists could not be
    /// attached, or may get more queues, which no message reports.
    fn retry(&self) -> Option<Duration> {
        let waits = |w: &SupervisedWire, s: WireSide| match &w.sides[s as usize].attached {
            Some(a) => !a.queues_known,
            None => self.interface(w.config.interface(s)).is_some(),
        };
        let any = self.wires.iter().any(|w| WireSide::ALL.iter().any(|&s| waits(w, s)));
        (any || self.missed).then_some(RETRY)
    }

    fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.values().find(|l| l.name == name)
    }

    /// Updates the table of interfaces. After lost messages the table stays as it is until a new list
    /// has come, so that no wire is cut because of a lost message.
    fn receive_events(&mut self) {
        let (interfaces, listed) = (&mut self.interfaces, &mut self.listed);
        let complete = self.monitor.receive(|event| match event {
            InterfaceEvent::Present(interface) => {
                if let Some(listed) = listed {
                    listed.insert(interface.index);
                }
                interfaces.insert(interface.index, interface);
            }
            InterfaceEvent::Gone(index) => drop(interfaces.remove(&index)),
            InterfaceEvent::ListEnd => {
                if let Some(listed) = listed.take() {
                    interfaces.retain(|index, _| listed.contains(index));
                }
            }
        });
        self.missed |= !matches!(complete, Ok(true));
        if self.missed {
            tracing::warn!(
                event = "interface_messages_lost",
                "messages about interfaces were lost, requesting the whole list"
            );
            // The kernel refuses it while an earlier list is coming; `retry` repeats it.
            self.missed = self.monitor.request_all().is_err();
            self.listed = Some(BTreeSet::new());
        }
    }

    fn reconcile(&mut self) {
        for n in 0..self.wires.len() {
            for side in WireSide::ALL {
                self.reconcile_side(n, side);
            }
        }
    }

    fn reconcile_side(&mut self, n: usize, side: WireSide) {
        let name = self.wires[n].config.interface(side).to_owned();
        let interface = self.interface(&name).cloned();
        let attached = self.wires[n].sides[side as usize].attached.as_ref();
        if let Some(a) = attached {
            let is_there = interface.as_ref().is_some_and(|l| l.index == a.index);
            if is_there && a.serves_all(&name) {
                let notice = interface.and_then(|l| self.check_mtu(&l).err());
                self.set_notice(
                    n,
                    side,
                    notice.map(|e| format!("{e}; larger frames are dropped and counted")),
                );
                return;
            }
            if let Err(error) = self.detach(n, side, is_there) {
                tracing::error!(
                    event = "wire_detach_failed",
                    interface = name,
                    error = describe(&error),
                    "cannot detach"
                );
            }
        }
        let Some(interface) = interface else {
            return self.set_notice(n, side, Some(format!("there is no interface {name}")));
        };
        let result = self.attach(n, side, &interface);
        let failed = result.err().map(|e| describe(&e));
        if failed.is_none() {
            let native =
                self.wires[n].sides[side as usize].attached.as_ref().is_some_and(|a| a.program.native());
            tracing::info!(
                event = "wire_attached",
                interface = name,
                wire = self.wires[n].config.name,
                side = side.name(),
                native,
                "attached"
            );
        }
        self.set_notice(n, side, failed);
    }

    /// Stores the notice of a side, and logs it once.
    fn set_notice(&mut self, n: usize, side: WireSide, notice: Option<String>) {
        let wire = &mut self.wires[n];
        let kept = &mut wire.sides[side as usize].notice;
        if let Some(text) = &notice
            && kept.as_ref() != Some(text)
        {
            tracing::warn!(event = "wire_side_notice", wire = wire.config.name, side = side.name(), "{text}");
        }
        *kept = notice;
    }

    fn check_mtu(&self, interface: &Interface) -> Result<()> {
        let longest = self.config.memory.max_packet() - FRAME_OVERHEAD;
        if interface.mtu <= longest {
            return Ok(());
        }
        Err(Error::Mtu { interface: interface.name.clone(), mtu: interface.mtu, longest })
    }

    fn check_memory(&self, interface: &Interface, queues: u32) -> Result<()> {
        let (have, need) = (self.config.memory.frames.into(), self.config.frames_needed(self.ports + queues));
        if need <= have {
            return Ok(());
        }
        Err(Error::Memory { interface: interface.name.clone(), have, need })
    }

    fn attach(&mut self, n: usize, side: WireSide, interface: &Interface) -> Result<()> {
        self.check_mtu(interface)?;
        let reported_queues = ethtool::receive_queues(&interface.name).map(|n| n.min(MAX_QUEUES));
        self.check_memory(interface, reported_queues.unwrap_or(1))?;
        let WireConfig { xdp, mode, .. } = self.wires[n].config;
        let program = XdpProgram::attach(interface, xdp, self.config.memory.max_packet())?;
        self.prepare(interface, &program)?;
        let first = SocketConfig { interface: interface.index, queue: 0, ring: self.config.ring, mode };
        let sockets =
            Socket::bind_queues(std::slice::from_ref(&self.umem), &first, reported_queues, MAX_QUEUES)?;
        let queues = sockets.len() as u32;
        self.check_memory(interface, queues)?;
        let duplicate = |s: &Socket| s.as_fd().try_clone_to_owned();
        let fds = sockets.iter().map(duplicate).collect::<std::io::Result<Vec<OwnedFd>>>();
        let fds = fds.map_err(Error::system("duplicate a descriptor"))?;
        let id = self.wires[n].id;
        self.engine.run(move |e| e.install(id, side, sockets))??;
        self.ports += queues;
        // The fill rings have frames, so packets may come.
        let serve = |(fd, queue): (&OwnedFd, u32)| program.serve(queue, fd.as_fd());
        let served = fds.iter().zip(0..).try_for_each(serve);
        let attached =
            Attached { index: interface.index, queues, queues_known: reported_queues.is_some(), program };
        self.wires[n].sides[side as usize].attached = Some(attached);
        if let Err(source) = served {
            drop(fds);
            self.detach(n, side, true)?;
            let (step, interface) = ("redirect frames to the socket", interface.name.clone());
            return Err(crate::XdpError::Bpf { step, interface, source }.into());
        }
        Ok(())
    }

    /// Switches off the offloads that a program cannot handle, and closes the interface to the host's
    /// own stack.
    fn prepare(&self, interface: &Interface, program: &XdpProgram) -> Result<()> {
        let peer = interface.peer.and_then(|i| self.interfaces.get(&i));
        offload::switch_off(program, interface, peer);
        if self.config.guard == Guard::Required {
            let failed = |source| Error::Guard { interface: interface.name.clone(), source };
            program.close_guard().map_err(failed)?;
        }
        Ok(())
    }

    /// Detaches an interface: frames stop, the sockets close, then their frames return.
    fn detach(&mut self, n: usize, side: WireSide, is_there: bool) -> Result<()> {
        let id = self.wires[n].id;
        let Some(attached) = self.wires[n].sides[side as usize].attached.take() else { return Ok(()) };
        self.ports -= attached.queues;
        tracing::info!(
            event = "wire_detached",
            interface = self.wires[n].config.interface(side),
            is_there,
            "detached"
        );
        let sockets = self.engine.run(move |e| e.uninstall(id, side))?;
        // The kernel uses the frames until the sockets are closed, which may take a while.
        let ports: Vec<_> = sockets.into_iter().map(|(port, _closed)| port).collect();
        drop(attached);
        self.engine.run(move |e| e.reclaim(&ports))
    }

    fn detach_both(&mut self, id: WireId) -> Result<()> {
        let Some(n) = self.wires.iter().position(|w| w.id == id) else { return Ok(()) };
        for side in WireSide::ALL {
            self.detach(n, side, true)?;
        }
        Ok(())
    }

    /// Adds a wire and attaches the interfaces that exist.
    pub(crate) fn add(&mut self, config: WireConfig) -> Result<WireId> {
        self.check(&config)?;
        let (name, specs) = (config.name.clone(), specs(&config, self.wires.len() as u32));
        let id = self.engine.run(move |e| e.add_wire(name, specs))?;
        self.wires.push(SupervisedWire { id, config, sides: Default::default() });
        self.receive_events();
        let n = self.wires.len() - 1;
        for side in WireSide::ALL {
            self.reconcile_side(n, side);
        }
        Ok(id)
    }

    fn check_vm(&self, config: &WireConfig) -> Result<()> {
        let vm = config.vm;
        let tenant = self.config.mediator.tenants.get(usize::from(vm.tenant));
        if tenant.is_some_and(|t| usize::from(vm.vm) < t.vms.len()) {
            return Ok(());
        }
        let why = format!("there is no VM {} of tenant {}", vm.vm, vm.tenant);
        Err(Error::Wire { wire: config.name.clone(), why })
    }

    fn check(&self, config: &WireConfig) -> Result<()> {
        let refuse = |why: String| Err(Error::Wire { wire: config.name.clone(), why });
        self.check_vm(config)?;
        if config.vm_if == config.switch_if {
            return refuse(format!("{} cannot be both of its interfaces", config.vm_if));
        }
        for name in WireSide::ALL.map(|s| config.interface(s)) {
            if let Some(w) =
                self.wires.iter().find(|w| WireSide::ALL.iter().any(|&s| w.config.interface(s) == name))
            {
                return refuse(format!("{name} already belongs to wire {}", w.config.name));
            }
        }
        Ok(())
    }

    /// Changes what is configured for a wire besides its interfaces.
    pub(crate) fn change(&mut self, id: WireId, config: WireConfig) -> Result<()> {
        let at = self.wires.iter().position(|w| w.id == id).ok_or(Error::Gone)?;
        self.check_vm(&config)?;
        let specs = specs(&config, at as u32);
        self.engine.run(move |e| e.describe_wire(id, specs))?;
        self.wires[at].config = config;
        Ok(())
    }

    /// Returns the loop's configuration with these tenants, if they are valid and there is memory for them.
    pub(crate) fn check_tenants(&self, config: mediator::Config) -> Result<LoopConfig> {
        config.validate()?;
        let after = LoopConfig { mediator: config, ..self.config.clone() };
        let (have, need) = (self.config.memory.frames.into(), after.frames_needed(self.ports));
        if need > have { Err(Error::TenantMemory { have, need }) } else { Ok(after) }
    }

    /// Replaces the tenants. Returns the new counters.
    pub(crate) fn change_tenants(&mut self, config: mediator::Config) -> Result<Arc<Counters>> {
        let after = self.check_tenants(config)?;
        let (before, config) = (self.config.mediator.clone(), after.mediator.clone());
        let counters = self.engine.run(move |e| e.change_tenants(&before, &config))??;
        self.config = after;
        Ok(counters)
    }

    /// Removes a wire. Its interfaces stay closed to the host's own stack unless `open`.
    pub(crate) fn remove(&mut self, id: WireId, open: bool) -> Result<()> {
        let Some(n) = self.wires.iter().position(|w| w.id == id) else { return Ok(()) };
        for attached in self.wires[n].sides.iter().filter_map(|s| s.attached.as_ref()).filter(|_| open) {
            let _ = attached.program.open_guard();
        }
        self.detach_both(id)?;
        self.wires.remove(n);
        self.engine.run(move |e| e.remove_wire(id))
    }

    /// Returns the status of all wires.
    pub(crate) fn status(&mut self) -> Result<Vec<WireStatus>> {
        let side_status = |wire: &SupervisedWire, side: WireSide| -> Result<SideStatus> {
            let (id, state) = (wire.id, &wire.sides[side as usize]);
            let attached = state.attached.as_ref().map(|a| -> Result<AttachedStatus> {
                let sockets = self.engine.run(move |e| e.statistics(id, side))?;
                let xdp = a.program.counters().unwrap_or_default();
                Ok(AttachedStatus {
                    index: a.index,
                    queues: a.queues,
                    native: a.program.native(),
                    restores_tags: a.program.restores_tags(),
                    kernel: KernelCounters { xdp, sockets },
                })
            });
            let interface = wire.config.interface(side).to_owned();
            Ok(SideStatus { interface, attached: attached.transpose()?, notice: state.notice.clone() })
        };
        let status = |wire: &SupervisedWire| {
            let sides = [side_status(wire, WireSide::Vm)?, side_status(wire, WireSide::Switch)?];
            Ok(WireStatus { id: wire.id, name: wire.config.name.clone(), sides })
        };
        self.wires.iter().map(status).collect()
    }
}

/// Returns the mediator's description of each side of a wire.
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

/// Formats an error with its causes in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
