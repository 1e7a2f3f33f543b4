//! The load generator, the tenants' VMs and the sink: one thread on the first core that never sleeps.
//!
//! Only the switches have the other core. The NIC switch's programs run on the core of the packet's sender.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::PacketIo as _;
use p4shield_testbed::NetNs;

use super::packet;
use crate::cores;
use crate::fixture::headers::Headers;
use crate::fixture::hosts::INTERFACE;

/// Packets that the generator sends before VMs and sink have their turn. These take all that waits for them:
/// a thread without time for all of it sends less, and loses none that a switch has carried.
const BURST: u32 = 32;
/// Entries of a machine's rings, so that a packet finds room while the thread has no core.
const RING: u32 = 2048;
/// As many packets as can wait.
const ALL: usize = RING as usize;
/// Longest time whose packets a generator that had no core sends later, and no more than [`BURST`] of them.
const LATE: Duration = Duration::from_millis(2);
/// Time before each measurement, for the switches to get used to the rate.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest way of a packet: a later one counts as lost.
const LONGEST: Duration = Duration::from_millis(300);

/// Longest time by which a measurement is extended until each tenant has got a packet.
const PATIENCE: Duration = Duration::from_secs(10);

/// The network interface of a namespace, which this process serves instead of the kernel.
pub(super) struct Machine<'n> {
    ns: &'n NetNs,
    /// `None` once it is closed.
    ports: Option<AfxdpPorts>,
}

impl<'n> Machine<'n> {
    pub(super) fn open(ns: &'n NetNs) -> anyhow::Result<Self> {
        let config = AfxdpConfig { ring: RING, ..AfxdpConfig::new([INTERFACE]) };
        Ok(Self { ns, ports: Some(ns.inside(|| AfxdpPorts::open(&config))?) })
    }

    fn ports(&mut self) -> anyhow::Result<&mut AfxdpPorts> {
        self.ports.as_mut().context("the machine's interface is closed")
    }

    /// Receives packets and sends them on.
    fn forward(&mut self, to: &Headers) -> anyhow::Result<()> {
        let ports = self.ports()?;
        let mut packets = Vec::new();
        ports.receive(0, ALL, |frame| packets.extend(packet::forwarded(frame, to)))?;
        for packet in &packets {
            ports.send(0, packet);
        }
        Ok(ports.flush()?)
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // The interface gets back by name what was switched off: another namespace has that name, too.
        let ports = self.ports.take();
        self.ns.inside(|| drop(ports));
    }
}

/// The ways of the packets.
pub(super) struct Ways<'m, 'n> {
    /// The generator and sink.
    pub(super) outside: &'m mut Machine<'n>,
    /// Its packets, by tenant.
    pub(super) frames: Vec<Vec<u8>>,
    /// The VMs, with the headers of what each sends on.
    pub(super) vms: Vec<(&'m mut Machine<'n>, Headers)>,
}

/// A packet that came back: its tenant, when it was sent, and when it came.
type Arrival = (u16, Duration, Duration);

/// All packets since a start.
#[derive(Default)]
struct Log {
    sent: Vec<Duration>,
    arrived: Vec<Arrival>,
}

/// The packets of a part of the time.
pub(super) struct Seen {
    /// Packets a second that were sent.
    pub(super) sent_pps: f64,
    /// Packets a second that came back, by tenant.
    pub(super) tenant_pps: Vec<f64>,
    /// Packets that were sent and did not come back in time, percent.
    pub(super) lost_percent: f64,
    /// From generator to sink, microseconds.
    pub(super) micros: Vec<f64>,
}

/// Sends at one rate after the other, all tenants' packets by turns, and returns what comes back at each in
/// `time`, or in a longer one if switch or generator have no core in it. `look` is called at the start and
/// at the end of the last of these times, while packets flow.
pub(super) fn measure(
    ways: &mut Ways<'_, '_>,
    rates: &[u32],
    time: Duration,
    mut look: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Seen>> {
    let tenants = ways.frames.len();
    let shared = &Shared::new(tenants);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| run(ways, shared));
        let (mut times, mut looked) = (Vec::new(), Ok(()));
        for (n, now) in rates.iter().enumerate() {
            shared.rate.store(*now, Relaxed);
            std::thread::sleep(SETTLE);
            let is_last = n + 1 == rates.len();
            let first = if is_last { look() } else { Ok(()) };
            let from = shared.begin();
            std::thread::sleep(time);
            while shared.start.elapsed() < from + time + PATIENCE && shared.misses_a_tenant() {
                std::thread::sleep(LONGEST / 10);
            }
            times.push([from, shared.start.elapsed()]);
            looked = if is_last { first.and(look()) } else { looked };
        }
        std::thread::sleep(LONGEST);
        shared.stop.store(true, Relaxed);
        let log = thread.join().map_err(|_| anyhow::anyhow!("the generator's thread panicked"))??;
        looked?;
        times.into_iter().map(|time| log.seen(time, tenants)).collect()
    })
}

/// State that the generator's thread and the measuring one share.
struct Shared {
    start: Instant,
    /// Packets a second to send.
    rate: AtomicU32,
    /// When the measured time began: nanoseconds since the start.
    from: AtomicU64,
    /// Packets that were sent in the measured time and came back in time, by tenant.
    seen: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl Shared {
    fn new(tenants: usize) -> Self {
        Self {
            start: Instant::now(),
            rate: AtomicU32::new(0),
            from: AtomicU64::new(0),
            seen: (0..tenants).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
        }
    }

    /// Begins a measured time. Returns when, since the start.
    fn begin(&self) -> Duration {
        let from = self.start.elapsed();
        self.from.store(from.as_nanos() as u64, Relaxed);
        self.seen.iter().for_each(|seen| seen.store(0, Relaxed));
        from
    }

    /// Reports whether a tenant has got no packet in the measured time.
    fn misses_a_tenant(&self) -> bool {
        self.seen.iter().any(|seen| seen.load(Relaxed) == 0)
    }

    fn count(&self, arrival: &Arrival) {
        let (tenant, sent, _) = arrival;
        let is_ours = is_in_time(arrival) && sent.as_nanos() as u64 >= self.from.load(Relaxed);
        if is_ours && let Some(seen) = self.seen.get(usize::from(*tenant)) {
            seen.fetch_add(1, Relaxed);
        }
    }
}

/// Generates load until it is stopped.
fn run(ways: &mut Ways<'_, '_>, shared: &Shared) -> anyhow::Result<Log> {
    let start = shared.start;
    cores::pin(cores::two()[0]);
    let (mut log, mut number, mut due, mut then) = (Log::default(), 0, 0.0_f64, Duration::ZERO);
    while !shared.stop.load(Relaxed) {
        let now = start.elapsed();
        due += now.saturating_sub(then).min(LATE).as_secs_f64() * f64::from(shared.rate.load(Relaxed));
        then = now;
        let ports = ways.outside.ports()?;
        let burst = due.min(f64::from(BURST)).floor();
        due = (due - burst).min(f64::from(BURST));
        for _ in 0..burst as u32 {
            number = (number + 1) % ways.frames.len();
            let sent = start.elapsed();
            packet::stamp(&mut ways.frames[number], sent);
            if ports.send(0, &ways.frames[number]) {
                log.sent.push(sent);
            }
        }
        ports.receive(0, ALL, |frame| {
            let arrival = packet::read(frame).map(|(tenant, sent)| (tenant, sent, start.elapsed()));
            log.arrived.extend(arrival.inspect(|arrival| shared.count(arrival)));
        })?;
        ports.flush()?;
        for (vm, to) in &mut ways.vms {
            vm.forward(to)?;
        }
    }
    Ok(log)
}

fn is_in_time(arrival: &Arrival) -> bool {
    let (_, sent, at) = arrival;
    sent <= at && at.saturating_sub(*sent) <= LONGEST
}

impl Log {
    fn seen(&self, [from, until]: [Duration; 2], tenants: usize) -> anyhow::Result<Seen> {
        let seconds = (until - from).as_secs_f64();
        let is_measured = |time: &Duration| (from..until).contains(time);
        let sent = self.sent.iter().filter(|sent| is_measured(sent)).count() as f64;
        ensure!(sent > 0.0, "the generator sent nothing: it had no core, or its interface takes no packet");
        // A packet of an earlier measurement may come later than this one's start.
        let ours = || self.arrived.iter().filter(|arrival| is_in_time(arrival));
        let mut tenant_pps = vec![0.0; tenants];
        for (tenant, ..) in ours().filter(|(_, _, at)| is_measured(at)) {
            *tenant_pps.get_mut(usize::from(*tenant)).context("a packet of another tenant came")? +=
                1.0 / seconds;
        }
        let back = ours().filter(|(_, sent, _)| is_measured(sent));
        let micros: Vec<_> = back.map(|(_, sent, at)| (*at - *sent).as_secs_f64() * 1e6).collect();
        let lost_percent = (100.0 * (1.0 - micros.len() as f64 / sent)).max(0.0);
        Ok(Seen { sent_pps: sent / seconds, tenant_pps, lost_percent, micros })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_of_the_measured_time_count() {
        let at = Duration::from_millis;
        let log = Log {
            sent: (0..100).map(at).collect(),
            // Two tenants' packets take a millisecond; the last ten of the measured time are lost.
            arrived: (0..80).map(|n| ((n % 2) as u16, at(n), at(n + 1))).collect(),
        };
        let seen = log.seen([at(40), at(90)], 2).unwrap();
        assert!((seen.sent_pps - 1000.0).abs() < 1e-6 && (seen.lost_percent - 20.0).abs() < 1e-6);
        assert!((seen.tenant_pps.iter().sum::<f64>() - 820.0).abs() < 1e-6, "{:?}", seen.tenant_pps);
        assert!(seen.micros.len() == 40 && seen.micros.iter().all(|t| (t - 1000.0).abs() < 1e-6));
        assert!(log.seen([at(200), at(300)], 2).is_err(), "nothing was sent");
        assert!(log.seen([at(0), at(90)], 1).is_err(), "a tenant that does not exist");
    }
}
