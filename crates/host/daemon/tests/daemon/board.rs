//! An attachment without a network: a mediator, and a thread that sends packets to both tenants all the time.

use p4shield_abi::Direction;
use p4shield_channel::SharedMemory;
use p4shield_daemon::{Attachment, ChannelEnd, LaneKey, Totals};
use p4shield_mediator::{
    AllowedSources, Config, Counters, DirectionCounts, Mediator, Network, PortSpec, Stages, UnownedPolicy,
    VmRef,
};
use p4shield_testbed::packet::udp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// Packets of one tenant that are on their way at a time.
const IN_FLIGHT: usize = 64;

/// The attachment.
pub(crate) struct Board {
    mediator: Mutex<Mediator<Vec<u8>>>,
    counters: Arc<Counters>,
    /// The newest channel of each tenant, for whoever wants to scribble over it.
    pub(crate) channels: Mutex<Vec<Option<SharedMemory>>>,
    ending: AtomicBool,
    started: Instant,
}

impl Board {
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        let mediator = Mediator::new(config).unwrap();
        Arc::new(Self {
            counters: mediator.counters(),
            mediator: Mutex::new(mediator),
            channels: Mutex::new(config.tenants.iter().map(|_| None).collect()),
            ending: AtomicBool::new(false),
            started: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap()
    }

    /// What happened to a tenant's packets towards its VM.
    pub(crate) fn tally(&self, tenant: usize) -> DirectionCounts {
        self.counters.tenants[tenant].vms[0].direction(Direction::Ingress).read()
    }

    /// Sends packets to the first VM of each tenant until the value is dropped.
    pub(crate) fn traffic(self: &Arc<Self>) -> Traffic {
        let board = Arc::clone(self);
        Traffic { board: Arc::clone(self), thread: Some(std::thread::spawn(move || board.send())) }
    }

    fn send(&self) {
        let tenants = self.counters.tenants.len() as u16;
        while !self.ending.load(Ordering::Acquire) {
            let mut mediator = self.mediator.lock().unwrap();
            for tenant in 0..tenants {
                let vm = VmRef { tenant, vm: 0 };
                let packet = udp([10, 0, 0, 99], [10, 0, 0, tenant as u8 + 1]);
                let port = PortSpec {
                    number: 0,
                    stages: Stages::IngressOnly(vm),
                    unowned: UnownedPolicy::Pass,
                    source: AllowedSources::Any,
                    network: Network::Unknown,
                };
                if self.tally(tenant.into()).held < IN_FLIGHT as u64 {
                    for _ in 0..16 {
                        let _ = mediator.submit(self.now(), &port, packet.clone());
                    }
                }
            }
            mediator.poll(self.now(), 256, |released| drop(released.packet));
            drop(mediator);
            std::thread::yield_now();
        }
    }
}

impl Attachment for Board {
    fn lanes(&self) -> Vec<LaneKey> {
        vec![LaneKey(0)]
    }

    fn on_change(&self, _: Box<dyn Fn() + Send + Sync>) {}

    fn attach(&self, _: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        self.channels.lock().unwrap()[tenant] = Some(end.memory.map_again().unwrap());
        let (now, link) = (self.now(), end.into_link().unwrap());
        self.mediator.lock().unwrap().replace_channel(now, tenant, Some(link)).map_err(|e| e.to_string())
    }

    fn detach(&self, tenant: usize) {
        self.channels.lock().unwrap()[tenant] = None;
        let now = self.now();
        self.mediator.lock().unwrap().replace_channel(now, tenant, None).unwrap();
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        self.mediator.lock().unwrap().fault(tenant).map(|f| f.to_string())
    }

    fn totals(&self) -> Totals {
        Totals::of(&self.counters)
    }
}

/// Traffic that flows.
pub(crate) struct Traffic {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.board.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
