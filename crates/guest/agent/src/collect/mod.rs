//! Collectors: values of the user VM's kernel as fields of a snapshot.
//!
//! Files are read in the network namespace of the calling thread (`/proc/thread-self/net`), so a collector
//! is created and used on one thread. Unreadable values are unknown in the snapshot, and logged once.
//!
//! `TCP: mem` of sockstat is one number for the whole kernel, independent of network namespaces. A VM has
//! its own kernel, so the number is the VM's. `TCP: inuse` is counted per namespace.

pub mod parse;
pub mod rates;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use p4shield_abi::info::{INTERFACES, Snapshot, field};

use crate::config::{InterfaceConfig, Threshold};
use rates::{Meter, utilisation};
use source::Source;

/// Files that rarely change are read only every so many rounds; the kernel updates some every two seconds.
const SLOW: u64 = 10;

/// Reads all values at the publisher's rate.
pub struct Collector {
    page_size: u64,
    threshold: Threshold,
    rounds: u64,
    buffer: Vec<u8>,
    sockstat: Source,
    sockstat6: Source,
    tcp_mem: Source,
    memory_pressure: Source,
    cpu_pressure: Source,
    meminfo: Source,
    net_dev: Source,
    interfaces: Vec<Interface>,
    /// Fields of the rarely read files.
    slow: Vec<(u32, u64)>,
}

struct Interface {
    name: String,
    configured_speed: Option<u64>,
    meter: Meter,
    speed: Source,
    speed_bps: Option<u64>,
}

impl Collector {
    /// Creates a collector for the calling thread. Interfaces beyond the [`INTERFACES`] of a snapshot are
    /// ignored.
    #[must_use]
    pub fn new(threshold: Threshold, interfaces: &[InterfaceConfig], window: Duration) -> Self {
        let net = |file: &str, what| Source::new(PathBuf::from("/proc/thread-self/net").join(file), what);
        let proc = |file: &str, what| Source::new(PathBuf::from("/proc").join(file), what);
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Self {
            page_size: rustix::param::page_size() as u64,
            threshold,
            rounds: 0,
            buffer: Vec::new(),
            sockstat: net("sockstat", "TCP memory"),
            sockstat6: net("sockstat6", "the number of TCP sockets over IPv6"),
            tcp_mem: proc("sys/net/ipv4/tcp_mem", "the limit of TCP memory"),
            memory_pressure: proc("pressure/memory", "memory pressure (PSI)"),
            cpu_pressure: proc("pressure/cpu", "CPU pressure (PSI)"),
            meminfo: proc("meminfo", "used memory"),
            net_dev: net("dev", "traffic of the interfaces"),
            interfaces: interfaces.iter().take(INTERFACES).map(|i| Interface::new(i, window_ns)).collect(),
            slow: Vec::new(),
        }
    }

    /// Sets every field that is known at `now` (monotonic clock, nanoseconds).
    pub fn collect(&mut self, now: u64, snapshot: &mut Snapshot) {
        if self.rounds.is_multiple_of(SLOW) {
            self.read_slow();
        }
        self.rounds += 1;
        for (field, value) in &self.slow {
            snapshot.set(*field, *value);
        }
        self.read_tcp(snapshot);
        self.read_interfaces(now, snapshot);
    }

    fn read_tcp(&mut self, snapshot: &mut Snapshot) {
        let Some(text) = self.sockstat.read(&mut self.buffer) else { return };
        let tcp = parse::sockstat(text);
        let bytes = tcp.mem_pages.and_then(|pages| pages.checked_mul(self.page_size));
        set(snapshot, field::TCP_MEM_USED, bytes);
        // A kernel without IPv6 lacks this file and has IPv4 sockets only.
        let v6 = self.sockstat6.read(&mut self.buffer).and_then(parse::sockstat6).unwrap_or(0);
        set(snapshot, field::TCP_SOCKETS, tcp.in_use.map(|v4| v4.saturating_add(v6)));
    }

    fn read_slow(&mut self) {
        self.slow.clear();
        let threshold = match self.threshold {
            Threshold::Bytes(bytes) => Some(bytes),
            Threshold::Fraction(share) => {
                let limit = self.tcp_mem.read(&mut self.buffer).and_then(parse::tcp_mem_limit);
                limit.and_then(|pages| fraction(share, pages.checked_mul(self.page_size)?))
            }
        };
        let memory = self.memory_pressure.read(&mut self.buffer).map(parse::pressure).unwrap_or_default();
        let cpu = self.cpu_pressure.read(&mut self.buffer).map(parse::pressure).unwrap_or_default();
        let mem = self.meminfo.read(&mut self.buffer).map(parse::meminfo).unwrap_or_default();
        for interface in &mut self.interfaces {
            interface.read_speed(&mut self.buffer);
        }
        let fields = [
            (field::TCP_MEM_THRESHOLD, threshold),
            (field::MEM_PRESSURE_SOME, memory.some),
            (field::MEM_PRESSURE_FULL, memory.full),
            (field::CPU_PRESSURE_SOME, cpu.some),
            (field::MEM_USED, mem.used),
            (field::MEM_TOTAL, mem.total),
        ];
        self.slow.extend(fields.into_iter().filter_map(|(f, v)| Some((f, v?))));
    }

    fn read_interfaces(&mut self, now: u64, snapshot: &mut Snapshot) {
        if self.interfaces.is_empty() {
            return;
        }
        let text = self.net_dev.read(&mut self.buffer).unwrap_or_default();
        for (i, interface) in (0..).zip(&mut self.interfaces) {
            let base = field::INTERFACE_BASE + i * field::INTERFACE_STRIDE;
            let speed = interface.configured_speed.or(interface.speed_bps);
            set(snapshot, base + field::INTERFACE_SPEED_BPS, speed);
            let counters = parse::net_dev(text, &interface.name);
            let index = crate::interface::index(&interface.name).unwrap_or(0);
            let Some(rates) = interface.meter.sample(now, index, counters) else { continue };
            snapshot.set(base + field::INTERFACE_RX_BPS, rates.rx_bps);
            snapshot.set(base + field::INTERFACE_TX_BPS, rates.tx_bps);
            snapshot.set(base + field::INTERFACE_RX_PPS, rates.rx_pps);
            snapshot.set(base + field::INTERFACE_TX_PPS, rates.tx_pps);
            let share = |bps| utilisation(bps, speed?);
            set(snapshot, base + field::INTERFACE_RX_UTILISATION, share(rates.rx_bps));
            set(snapshot, base + field::INTERFACE_TX_UTILISATION, share(rates.tx_bps));
        }
    }
}

impl Interface {
    fn new(config: &InterfaceConfig, window_ns: u64) -> Self {
        let path = PathBuf::from("/sys/class/net").join(&config.name).join("speed");
        Self {
            name: config.name.clone(),
            configured_speed: config.speed_mbps.map(|m| m.saturating_mul(1_000_000)),
            meter: Meter::new(window_ns),
            speed: Source::new(path, "the speed of an interface, and so its utilisation,"),
            speed_bps: None,
        }
    }

    fn read_speed(&mut self, buffer: &mut Vec<u8>) {
        if self.configured_speed.is_none() {
            self.speed_bps = self.speed.read(buffer).and_then(parse::speed);
        }
    }
}

fn set(snapshot: &mut Snapshot, field: u32, value: Option<u64>) {
    if let Some(value) = value {
        snapshot.set(field, value);
    }
}

/// Returns a fraction of a number of bytes. The configuration's check bounds the fraction.
fn fraction(share: f64, of: u64) -> Option<u64> {
    // Exact enough: parts per million of any number below 2^64 fit into 128 bits.
    let millionths = share.mul_add(1e6, 0.5);
    (0.0..=1e6 + 1.0).contains(&millionths).then(|| {
        let share = u128::from(of) * millionths as u128 / 1_000_000;
        u64::try_from(share).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_fills_a_snapshot() {
        let lo = InterfaceConfig { name: "lo".into(), speed_mbps: Some(1_000) };
        let gone = InterfaceConfig { name: "no-such-if".into(), speed_mbps: None };
        let mut c = Collector::new(Threshold::Fraction(0.5), &[lo, gone], Duration::from_millis(500));
        let mut s = Snapshot::default();
        c.collect(1, &mut s);
        c.collect(1_000_000_000, &mut s);
        for f in [
            field::TCP_MEM,
            field::TCP_MEM_USED,
            field::TCP_MEM_THRESHOLD,
            field::TCP_SOCKETS,
            field::MEM_USED,
            field::MEM_TOTAL,
            field::INTERFACE_BASE + field::INTERFACE_RX_BPS,
            field::INTERFACE_BASE + field::INTERFACE_TX_UTILISATION,
            field::INTERFACE_BASE + field::INTERFACE_SPEED_BPS,
        ] {
            assert!(s.is_known(f), "field {f}");
        }
        assert!(s.get(field::MEM_USED) < s.get(field::MEM_TOTAL));
        for f in 0..field::INTERFACE_STRIDE {
            assert!(!s.is_known(field::INTERFACE_BASE + field::INTERFACE_STRIDE + f), "no such interface");
        }
    }

    #[test]
    fn thresholds_are_bytes() {
        let mut s = Snapshot::default();
        Collector::new(Threshold::Bytes(12_345), &[], Duration::ZERO).collect(0, &mut s);
        assert_eq!(s.get(field::TCP_MEM_THRESHOLD), Some(12_345));
        assert_eq!(fraction(0.25, 4_000), Some(1_000));
        assert_eq!(fraction(1.0, u64::MAX), Some(u64::MAX));
        assert_eq!(fraction(f64::NAN, 1), None);
    }

    #[test]
    fn a_missing_file_leaves_its_fields_unknown() {
        let mut c = Collector::new(Threshold::Bytes(1), &[], Duration::ZERO);
        c.memory_pressure = Source::new("/proc/no-such-file".into(), "pressure");
        let mut s = Snapshot::default();
        c.collect(0, &mut s);
        assert!(!s.is_known(field::MEM_PRESSURE_SOME));
        assert!(s.is_known(field::TCP_MEM_USED));
    }
}
