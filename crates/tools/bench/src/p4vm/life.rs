//! A P4 VM without a daemon, and a mediator that sends one packet at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use p4shield_abi::Direction;
use p4shield_abi::channel::{Geometry, Request as Packet};
use p4shield_channel::{Doorbell, Requester, create_channel};
use p4shield_compartment::{Compartment, Launcher as _, P4VmCommand, Processes, first_of};
use p4shield_config::{DEFAULT_MEMORY, Machine, Tee};
use p4shield_control::{Hello, PROTOCOL_VERSION, ProgramSlot, Reply, Request, Resources};
use p4shield_p4::NoIncludes;
use p4shield_testbed::process::product;

/// The program of the demo, which reads in-VM information.
const PROGRAM: &str = include_str!("../../../../../examples/programs/tcp_guard.p4");
/// The users of such P4 VMs, and their number.
const FIRST_UID: u32 = 0x6fb0_0000;
const USERS: u32 = 64;
/// Longest time for a request, and for a verdict.
const PATIENCE: Duration = Duration::from_secs(60);
/// Instructions that a program may execute for a packet.
const BUDGET: u64 = 1 << 20;
/// Bytes of the packet, all of which the P4 VM gets.
const PACKET: [u8; 64] = [0; 64];

/// Compiles the program.
pub(super) fn program() -> anyhow::Result<Vec<u8>> {
    let compiled = p4shield_p4::compile("tcp_guard.p4", PROGRAM, &NoIncludes, &Default::default());
    Ok(compiled.map_err(|e| anyhow!(e.render(false)))?.object)
}

/// How the guest's kernel maps the memory that a virtual machine shares (`resource2` or `resource2_wc` of the
/// device in sysfs; `Documentation/PCI/sysfs-pci.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    /// Without caches, as the daemon's P4 VMs.
    Uncached,
    /// Stores are collected, and may change places.
    WriteCombining,
}

impl Mapping {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Uncached => "uncached",
            Self::WriteCombining => "write combining",
        }
    }
}

/// A P4 VM's place in the report.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) machine: Option<Machine>,
    /// How a virtual machine maps the channel.
    pub(super) mapping: Option<Mapping>,
}

/// A P4 VM that runs.
pub(super) struct P4Vm {
    compartment: Box<dyn Compartment>,
    channel: Option<(Requester, Doorbell)>,
    /// Time from its start to its first answer.
    pub(super) ready: Duration,
}

impl P4Vm {
    /// Starts one, in a virtual machine or in a process.
    pub(super) fn start(case: &Case) -> anyhow::Result<Self> {
        let command = P4VmCommand {
            binary: product()?,
            uid: first_of(FIRST_UID, USERS),
            allow_missing: Vec::new(),
            memory: DEFAULT_MEMORY,
            cpu: None,
            busy: false,
            delay: Duration::ZERO,
            machine: case.machine.clone(),
            tee: Tee::None,
            write_combining: case.mapping == Some(Mapping::WriteCombining),
        };
        let hello = Hello {
            version: PROTOCOL_VERSION,
            tenant: "bench".to_owned(),
            door: None,
            no_program: 0,
            age_limit_ms: 1_000,
            log_interval_ms: 1_000,
            budget: BUDGET,
            min_epoch: 0,
        };
        let begun = Instant::now();
        let compartment = Processes.start(&command, None, hello, &Resources::none())?;
        Ok(Self { compartment, channel: None, ready: begun.elapsed() })
    }

    /// The process that it was started as.
    pub(super) fn pid(&self) -> i32 {
        self.compartment.pid().as_raw_nonzero().get()
    }

    /// Gives it the program and a channel.
    pub(super) fn load(&mut self, object: &[u8]) -> anyhow::Result<()> {
        let name = "web".to_owned();
        let vm = Request::SetVm { vm: 0, name, info: None, log: None, handshake: None, keys: None };
        self.call(vm, &Resources::none())?;
        let mut resources = Resources::none();
        let load = Request::LoadProgram {
            slot: ProgramSlot::new(0, Direction::Ingress),
            name: "tcp_guard".to_owned(),
            objects: resources.add_bytes(object),
            lengths: vec![object.len() as u32],
        };
        self.call(load, &resources)?;
        let geometry = Geometry::default();
        let memory = create_channel("p4shield-bench", geometry)?;
        let (doorbell, theirs) = Doorbell::pair()?;
        let file = memory.fd().context("the channel has no descriptor")?;
        let mut resources = Resources::none();
        let attach = Request::AttachChannel {
            channel: 0,
            geometry: geometry.into(),
            memory: resources.add(&file),
            doorbell: resources.add(&theirs),
            packets: None,
        };
        self.call(attach, &resources)?;
        self.channel = Some((Requester::new(memory, geometry)?, doorbell));
        Ok(())
    }

    fn call(&mut self, request: Request, resources: &Resources<'_>) -> anyhow::Result<Reply> {
        Ok(self.compartment.call(request, resources, PATIENCE)?)
    }

    /// Sends a packet, and returns the time until its verdict.
    pub(super) fn trip(&mut self) -> anyhow::Result<Duration> {
        let (requester, doorbell) = self.channel.as_mut().context("the P4 VM has no channel")?;
        let direction = Direction::Ingress as u8;
        let packet = Packet { id: 1, packet_len: PACKET.len() as u32, direction, ..Packet::default() };
        let begun = Instant::now();
        if requester.push(&packet, &PACKET).is_err() {
            bail!("the channel takes no packet");
        }
        if requester.publish() || requester.must_wake() {
            requester.wake(doorbell);
        }
        while requester.take(1, |_| ())? == 0 {
            if begun.elapsed() > PATIENCE {
                bail!("no verdict came in {} s", PATIENCE.as_secs());
            }
            std::hint::spin_loop();
        }
        Ok(begun.elapsed())
    }

    /// Ends it at once.
    pub(super) fn kill(self) {
        self.compartment.end(Duration::ZERO);
    }
}
