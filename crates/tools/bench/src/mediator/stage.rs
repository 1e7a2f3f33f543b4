//! A mediator of two tenants with their channels, and the polling loop of a switch's thread.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use p4shield_abi::channel::Geometry;
use p4shield_channel::{Doorbell, RequestBatch, Requester, Responder, Response, create_channel};
use p4shield_mediator::{
    AllowedSources, Config, Mediator, Network, P4VmChannel, PortSpec, Stages, TenantConfig, UnownedPolicy,
    VmConfig, VmRef,
};

use super::guarded::{Inline, WorkerThread};
use super::pool::{Frame, Pool};
use super::{Backend, Case, Samples};
use crate::cores;

/// A P4 VM's end: copies requests and headers into private memory and passes every packet.
struct Passing {
    judge: Responder,
    batch: RequestBatch,
    _bell: Doorbell,
}

impl Passing {
    /// Answers up to a batch. Returns the number of answers.
    fn judge(&mut self) -> usize {
        let count = self.judge.fetch(&mut self.batch).unwrap_or(0);
        for _ in 0..count {
            let _ = self.judge.respond(Response::Pass);
        }
        let _sleeps = self.judge.publish();
        count
    }
}

/// The responders, by back end.
enum Responders {
    Here(Vec<Passing>),
    There { stop: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
    P4vm { _working: WorkerThread },
    Inline { _inline: Inline },
}

impl Responders {
    fn start(mut judges: Vec<Passing>, backend: Backend) -> anyhow::Result<Self> {
        if backend == Backend::SameCore {
            return Ok(Self::Here(judges));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            cores::pin(cores::two()[1]);
            while !stopped.load(Ordering::Relaxed) {
                if judges.iter_mut().map(Passing::judge).sum::<usize>() == 0 {
                    std::hint::spin_loop();
                }
            }
        };
        let thread = std::thread::Builder::new().spawn(work)?;
        Ok(Self::There { stop, thread: Some(thread) })
    }

    /// Runs the responders on this core. Returns whether there are any.
    fn turn(&mut self) -> bool {
        let Self::Here(judges) = self else { return false };
        let mut any = false;
        for judge in judges {
            while judge.judge() != 0 {
                any = true;
            }
        }
        any
    }
}

impl Drop for Responders {
    fn drop(&mut self) {
        if let Self::There { stop, thread } = self {
            stop.store(true, Ordering::Relaxed);
            // A responder that panicked has printed its message; its packets were not answered.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

/// A mediator with its P4 VMs and a receiving port.
pub(super) struct Stage<'p> {
    mediator: Mediator<Frame<'p>>,
    port: PortSpec,
    judges: Responders,
}

impl<'p> Stage<'p> {
    pub(super) fn new(case: Case, backend: Backend, header_bytes: u32) -> anyhow::Result<Self> {
        let geometry = Geometry { header_bytes, slots: 512, ..Geometry::default() };
        let config = config();
        let mut mediator = Mediator::new(&config)?;
        let judges = match backend {
            Backend::SameCore | Backend::OtherCore => {
                let passing = (0..config.tenants.len()).map(|tenant| {
                    let (judge, bell) = connect(&mut mediator, tenant, geometry)?;
                    Ok(Passing { judge, batch: RequestBatch::new(&geometry), _bell: bell })
                });
                Responders::start(passing.collect::<anyhow::Result<_>>()?, backend)?
            }
            Backend::P4vm => {
                let (judge, bell) = connect(&mut mediator, 0, geometry)?;
                Responders::P4vm { _working: WorkerThread::start(judge, &geometry, bell)? }
            }
            Backend::Inline => {
                let (inline, engine) = Inline::start(geometry)?;
                mediator.attach_inline(0, engine)?;
                Responders::Inline { _inline: inline }
            }
        };
        let source = match case {
            Case::FromVm | Case::BetweenTenants => AllowedSources::Only(VmRef { tenant: 0, vm: 0 }),
            Case::Unowned | Case::ToVm | Case::ToManyVms => AllowedSources::Foreign,
        };
        let port = PortSpec {
            number: 1,
            stages: Stages::Both,
            unowned: UnownedPolicy::Pass,
            source,
            network: Network::Unknown,
        };
        Ok(Self { mediator, port, judges })
    }

    /// Runs a switch's loop (receive a burst, submit it, poll, send) for `time`, then until all packets are
    /// back.
    pub(super) fn run(&mut self, pool: &'p mut Pool, burst: usize, time: Duration) -> Samples {
        let mut samples = Samples::default();
        let total = pool.len();
        let mut free: Vec<Frame<'p>> = pool.frames().collect();
        let mut taken = Vec::with_capacity(burst);
        let mut polling = 0.0;
        let start = Instant::now();
        loop {
            let now = start.elapsed();
            let over = now >= time;
            if over && free.len() == total {
                break;
            }
            let now_ns = now.as_nanos() as u64;
            if free.len() >= burst && !over {
                taken.extend(free.drain(..burst));
                let before = free.len();
                let begin = Instant::now();
                self.mediator.submit_burst(now_ns, &self.port, taken.drain(..), |released| {
                    free.push(released.packet);
                });
                samples.packets += (free.len() - before) as u64;
                samples.submit.push(begin.elapsed().as_nanos() as f64 / burst as f64);
            }
            let waited_for = self.judges.turn();
            let begin = Instant::now();
            let passed = self.mediator.poll(now_ns, burst, |released| free.push(released.packet));
            // A packet that two tenants judge takes two polls; polls that return no packet do not count.
            polling += if passed != 0 || waited_for { begin.elapsed().as_nanos() as f64 } else { 0.0 };
            if passed != 0 {
                samples.poll.push(polling / passed as f64);
                samples.packets += passed as u64;
                polling = 0.0;
            }
        }
        samples.elapsed = start.elapsed();
        samples
    }
}

/// Attaches a channel to a tenant. Returns the P4 VM's end.
fn connect(
    mediator: &mut Mediator<Frame<'_>>,
    tenant: usize,
    geometry: Geometry,
) -> anyhow::Result<(Responder, Doorbell)> {
    let memory = create_channel("p4shield-bench", geometry)?;
    let far = memory.map_again()?;
    let (doorbell, bell) = Doorbell::pair()?;
    let link = P4VmChannel { requester: Requester::new(memory, geometry)?, doorbell };
    mediator.replace_channel(0, tenant, Some(link))?;
    Ok((Responder::new(far, geometry)?, bell))
}

/// Two tenants: 256 VMs in 10.0.0.0/24, one VM in 10.0.1.0. Long deadlines, so that a busy machine drops
/// nothing.
fn config() -> Config {
    let tenant = |number: u8, vms: u16| {
        let vm = |n: u16| VmConfig::new(format!("vm{n}"), vec![Ipv4Addr::new(10, 0, number, n as u8).into()]);
        TenantConfig {
            deadline: Duration::from_secs(3600),
            stall: None,
            ..TenantConfig::new(format!("t{number}"), (0..vms).map(vm).collect())
        }
    };
    Config { tenants: vec![tenant(0, 256), tenant(1, 1)] }
}
