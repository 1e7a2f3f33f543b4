//! An attachment without a network: a mediator, and a thread that sends packets to both tenants all the time.

use p4shield_abi::Direction;
use p4shield_channel::SharedMemory;
use p4shield_host::{Attachment, ChannelEnd, LaneKey, Totals};
use p4shield_mediator::{
    Config, Counters, Mediator, Others, Packet, PortSpec, RewriteRefused, Source, Stages, Tally, VmRef,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// Packets of one tenant that are on their way at a time.
const IN_FLIGHT: usize = 64;

/// A packet that nobody frees.
#[derive(Clone)]
pub(crate) struct Frame(Vec<u8>);

impl Packet for Frame {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn replace_head(&mut self, old_len: usize, new: &[u8], total: usize) -> Result<(), RewriteRefused> {
        self.0.splice(..old_len, new.iter().copied());
        self.0.truncate(total);
        Ok(())
    }
}

/// The attachment.
pub(crate) struct Board {
    mediator: Mutex<Mediator<Frame>>,
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
    pub(crate) fn tally(&self, tenant: usize) -> Tally {
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
                let port = PortSpec {
                    number: 0,
                    stages: Stages::IngressOnly(vm),
                    others: Others::Pass,
                    source: Source::Any,
                };
                if self.tally(tenant.into()).held < IN_FLIGHT as u64 {
                    for _ in 0..16 {
                        let _ = mediator.submit(self.now(), &port, udp_to([10, 0, 0, tenant as u8 + 1]));
                    }
                }
            }
            mediator.poll(self.now(), 256, |released| drop(released.packet));
            drop(mediator);
            std::thread::yield_now();
        }
    }
}

/// A packet to `address`.
fn udp_to(address: [u8; 4]) -> Frame {
    let mut bytes = vec![0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&[0, 46]);
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&[10, 0, 0, 99]);
    bytes[30..34].copy_from_slice(&address);
    Frame(bytes)
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
