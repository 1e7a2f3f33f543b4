//! An attachment without a network: a mediator, and a thread that sends packets to both tenants continuously.

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

/// Most packets of one tenant in flight.
const IN_FLIGHT: usize = 64;

/// The attachment.
pub(crate) struct TestAttachment {
    mediator: Mutex<Mediator<Vec<u8>>>,
    counters: Mutex<Arc<Counters>>,
    config: Mutex<Config>,
    /// The newest channel of each tenant, for tests that corrupt it.
    pub(crate) channels: Mutex<Vec<Option<SharedMemory>>>,
    ending: AtomicBool,
    started: Instant,
}

impl TestAttachment {
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        let mediator = Mediator::new(config).unwrap();
        Arc::new(Self {
            counters: Mutex::new(mediator.counters()),
            config: Mutex::new(config.clone()),
            mediator: Mutex::new(mediator),
            channels: Mutex::new(config.tenants.iter().map(|_| None).collect()),
            ending: AtomicBool::new(false),
            started: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap()
    }

    /// Returns the ingress counters of a tenant's VM.
    pub(crate) fn tally(&self, tenant: usize) -> DirectionCounts {
        self.counters().tenants[tenant].vms[0].direction(Direction::Ingress).read()
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters.lock().unwrap())
    }

    /// Takes the verdicts on packets that are held.
    pub(crate) fn drain(&self) {
        self.mediator.lock().unwrap().poll(self.now(), 256, |released| drop(released.packet));
    }

    /// Sends packets to the first VM of each tenant until the value is dropped.
    pub(crate) fn traffic(self: &Arc<Self>) -> Traffic {
        let attachment = Arc::clone(self);
        Traffic { attachment: Arc::clone(self), thread: Some(std::thread::spawn(move || attachment.send())) }
    }

    fn send(&self) {
        while !self.ending.load(Ordering::Acquire) {
            let mut mediator = self.mediator.lock().unwrap();
            let names: Vec<_> = self.counters().tenants.iter().map(|t| t.name.clone()).collect();
            for (tenant, _) in (0..).zip(names).filter(|(_, name)| !name.is_empty()) {
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

impl Attachment for TestAttachment {
    fn reconfigure(&self, config: &p4shield_daemon::config::Config) -> Result<(), String> {
        let config = p4shield_attach::mediator_config(config);
        let mut mediator = self.mediator.lock().unwrap();
        let before = std::mem::replace(&mut *self.config.lock().unwrap(), config.clone());
        let mut new = Mediator::successor(&config, &before).unwrap();
        new.inherit(&mut mediator);
        *self.counters.lock().unwrap() = new.counters();
        *mediator = new;
        self.channels.lock().unwrap().resize_with(config.tenants.len(), || None);
        Ok(())
    }

    fn lanes(&self) -> Vec<LaneKey> {
        vec![LaneKey(0)]
    }

    fn on_change(&self, _: Box<dyn Fn() + Send + Sync>) {}

    fn attach_channel(&self, _: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        self.channels.lock().unwrap()[tenant] = Some(end.memory.map_again().unwrap());
        let (now, link) = (self.now(), end.into_channel().unwrap());
        self.mediator.lock().unwrap().replace_channel(now, tenant, Some(link)).map_err(|e| e.to_string())
    }

    fn detach_channels(&self, tenant: usize) {
        let now = self.now();
        // One lock at a time: `reconfigure` takes them in the other order.
        let known = self.channels.lock().unwrap().get_mut(tenant).map(Option::take).is_some();
        if known {
            self.mediator.lock().unwrap().replace_channel(now, tenant, None).unwrap();
        }
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        self.mediator.lock().unwrap().fault(tenant).map(|f| f.to_string())
    }

    fn totals(&self) -> Totals {
        Totals::of(&self.counters())
    }
}

/// Running traffic.
pub(crate) struct Traffic {
    attachment: Arc<TestAttachment>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.attachment.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
