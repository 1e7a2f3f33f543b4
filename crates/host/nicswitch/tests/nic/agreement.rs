//! The program and the oracle agree about random frames. The kernel runs the program on each frame, as if an
//! interface of the switch had received it (`BPF_PROG_TEST_RUN`).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use macaddr::MacAddr6;
use p4shield_nicswitch::Reason;
use p4shield_topology::Port;
use p4shield_xdp::InterfaceMonitor;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::bed::*;
use crate::frames::*;
use crate::oracle::World;

/// A program, and what it returns.
struct Program {
    object: &'static [u8],
    name: &'static str,
    dropped: u32,
    redirected: u32,
}

static IN_XDP: Program = Program {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o")),
    name: "nic_plain",
    dropped: 1,    // XDP_DROP
    redirected: 4, // XDP_REDIRECT
};
static IN_TC: Program = Program {
    object: include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o")),
    name: "nic_switch",
    dropped: 2,    // TC_ACT_SHOT
    redirected: 7, // TC_ACT_REDIRECT
};

fn program() -> &'static Program {
    if is_in_xdp() { &IN_XDP } else { &IN_TC }
}

/// Returns the context with which an interface receives a frame.
fn context(interface: u32, length: usize) -> Vec<u8> {
    let words = if is_in_xdp() {
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        vec![0, length as u32, 0, interface, 0, 0]
    } else {
        // `struct __sk_buff` has ifindex at 40 of its 192 bytes.
        let mut words = vec![0; 48];
        words[10] = interface;
        words
    };
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}
const MACS: [MacAddr6; 13] = [
    A1,
    A2,
    GA,
    B1,
    GB,
    IA,
    IB,
    ROUTER,
    mac(0x66),
    MacAddr6::broadcast(),
    MacAddr6::new(0x33, 0x33, 0, 0, 0, 1),
    MacAddr6::new(1, 0, 0x5e, 0, 0, 1),
    MacAddr6::nil(),
];
const HOSTS: [u8; 5] = [0xa1, 0xa2, 0xb1, 1, 0x66];

/// Random bytes that make a frame; zeros after their end make one that passes.
pub(crate) struct Script<'a>(pub(crate) std::slice::Iter<'a, u8>);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Returns true once in `n` times.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// Returns the usual value, or now and then one of the others.
    fn usually<T: Copy>(&mut self, usual: T, others: &[T]) -> T {
        if self.once_in(6) { others[self.below(others.len())] } else { usual }
    }

    pub(crate) fn frame(&mut self, from: &str) -> Vec<u8> {
        let (own, host, to) = match from {
            "a1" => (A1, 0xa1, GA),
            "a2" => (A2, 0xa2, GA),
            "b1" => (B1, 0xb1, GB),
            "ga" => (GA, 1, A1),
            "gb" => (GB, 1, B1),
            "ia" => (IA, 0xa2, ROUTER),
            "ib" => (IB, 0xb1, ROUTER),
            _ => (ROUTER, 1, IA),
        };
        let to = if self.once_in(3) { MACS[self.below(MACS.len())] } else { to };
        let source = self.usually(own, &MACS);
        let (kind, packet) = match self.below(5) {
            0 => (IPV4, self.ipv4(host)),
            1 => (ARP, self.arp(own, host)),
            _ => (IPV6, self.ipv6(own, host)),
        };
        let kind = self.usually(kind, &[IPV4, IPV6, ARP, 0x8100, 0x88a8, 0x88cc, 46]);
        let mut frame = ethernet(to, source, kind, &packet);
        frame.truncate(frame.len() - 8 * usize::from(self.once_in(2)));
        self.damage(&mut frame);
        frame
    }

    /// Changes a bit or cuts the end, now and then.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        if self.once_in(8) {
            let at = self.below(frame.len());
            frame[at] ^= 1 << self.below(8);
        }
        if self.once_in(8) {
            frame.truncate(frame.len() - self.below(frame.len() - 13));
        }
    }

    fn ipv4(&mut self, host: u8) -> Vec<u8> {
        let from = v4(self.usually(host, &HOSTS));
        ipv4(from, v4(HOSTS[self.below(5)]), 17, &vec![0; self.below(140)])
    }

    fn arp(&mut self, own: MacAddr6, host: u8) -> Vec<u8> {
        let sender = match self.usually(host, &[0, 0, 1, 0xa2, 0xb1]) {
            0 => [0; 4].into(),
            last => v4(last),
        };
        let operation = self.usually(1 + self.0.len() as u8 % 2, &[1, 2, 3, 0]);
        arp(operation, self.usually(own, &MACS), sender, v4(HOSTS[self.below(5)]))
    }

    fn address6(&mut self, own: MacAddr6, host: u8) -> Ipv6Addr {
        match self.below(8) {
            0..5 => v6(host.into()),
            5 => link_local(self.usually(own, &MACS)),
            6 => Ipv6Addr::UNSPECIFIED,
            _ => v6(HOSTS[self.below(5)].into()),
        }
    }

    fn ipv6(&mut self, own: MacAddr6, host: u8) -> Vec<u8> {
        let source = self.address6(own, host);
        let mut payload = self.message(own, host);
        let mut next = self.usually(58, &[17, 6, 59]);
        for _ in 0..[0, 0, 0, 0, 1, 2, 7, 8][self.below(8)] {
            let kind = [0, 43, 44, 51, 60][self.below(5)];
            let mut header = vec![next, 0, 0, 0, 0, 0, 0, 0];
            if kind == 51 {
                header.extend([0; 4]);
                header[1] = 1;
            }
            header[1] = self.usually(header[1], &[0, 1, 2, 255]);
            header[3] = self.usually(1, &[0, 6, 8, 9]);
            payload.splice(..0, header);
            next = kind;
        }
        let mut packet = ipv6(source, v6(HOSTS[self.below(5)].into()), next, &payload);
        packet[5] = self.usually(packet[5], &[0, 3, 4, 7, 8, 23, 24, 32, 255]);
        packet
    }

    fn message(&mut self, own: MacAddr6, host: u8) -> Vec<u8> {
        let kind = [135, 135, 136, 136, 133, 134, 137, 128, 132, 138][self.below(10)];
        let target = (kind != 133).then(|| self.address6(own, host));
        let mut message = discovery(kind, target, None);
        for _ in 0..[0, 1, 1, 1, 2, 7, 8, 9][self.below(8)] {
            let (kind, length) =
                (self.usually(1 + self.0.len() as u8 % 2, &[3, 14]), self.usually(1, &[0, 2, 255]));
            message.extend([kind, length]);
            message.extend(self.usually(own, &MACS).as_bytes());
        }
        message
    }
}

/// The program and its counters.
struct Kernel {
    object: Object,
    counters: MapHandle,
    indexes: BTreeMap<String, u32>,
}

impl Kernel {
    /// Loads the program with the maps of a switch; on a thread in the switch's namespace.
    fn load(bed: &Bed) -> Self {
        let mut open = ObjectBuilder::default().open_memory(program().object).unwrap();
        for mut map in open.maps_mut() {
            let pinned = bed.folder.join(map.name());
            if pinned.exists() {
                map.set_pin_path(pinned).unwrap();
            }
        }
        open.progs_mut().for_each(|mut program| {
            let is_it = program.name() == self::program().name;
            program.set_autoload(is_it);
        });
        let interfaces = InterfaceMonitor::open().unwrap().list().unwrap();
        let indexes = interfaces.into_iter().map(|interface| (interface.name, interface.index)).collect();
        let counters = MapHandle::from_pinned_path(bed.folder.join("nic_counters")).unwrap();
        Self { object: open.load().unwrap(), counters, indexes }
    }

    /// Returns a counter of a port, by its place in the program's structure.
    fn count(&self, port: &str, place: usize) -> u64 {
        let Some(index) = self.indexes.get(port) else { return 0 };
        let values =
            self.counters.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap_or_default();
        values.iter().map(|v| u64::from_ne_bytes(v[8 * place..][..8].try_into().unwrap())).sum()
    }

    /// Returns all counters of drops of a port, then those of deliveries to all ports.
    fn counts(&self, from: &str) -> Vec<u64> {
        let drops = (0..Reason::ALL.len()).map(|reason| self.count(from, 4 + reason));
        drops.chain(NAMES.into_iter().map(|name| self.count(name, 2))).collect()
    }

    /// Runs the program on a frame; returns the port to which it redirects, or the reason of the drop.
    fn judge(&self, from: &str, frame: &[u8]) -> Result<&'static str, Reason> {
        let before = self.counts(from);
        let mut context = context(self.indexes[from], frame.len());
        let input = ProgramInput {
            context_in: Some(context.as_mut_slice()),
            data_in: Some(frame),
            ..ProgramInput::default()
        };
        let program = self.object.progs_mut().find(|program| program.name() == self::program().name).unwrap();
        let action = program.test_run(input).unwrap().return_value;
        let after = self.counts(from);
        let moved: Vec<usize> = (0..after.len()).filter(|at| after[*at] == before[*at] + 1).collect();
        let changed = before.iter().zip(&after).filter(|(b, a)| b != a).count();
        assert_eq!((moved.len(), changed), (1, 1), "{before:?} {after:?}");
        match moved[0].checked_sub(Reason::ALL.len()) {
            None => {
                assert_eq!(action, self::program().dropped);
                Err(Reason::ALL[moved[0]])
            }
            Some(name) => {
                assert_eq!(action, self::program().redirected);
                Ok(NAMES[name])
            }
        }
    }
}

/// Compares the program with the oracle on random frames, and returns how often each result came.
fn compare(kernel: &Kernel, world: &World, cases: u32) -> BTreeMap<String, u32> {
    let results = std::cell::RefCell::new(BTreeMap::new());
    let senders: Vec<&str> = NAMES.into_iter().filter(|name| world.mtus.contains_key(*name)).collect();
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let compared = runner.run(&vec(any::<u8>(), 0..90), |bytes| {
        let mut script = Script(bytes.iter());
        let from = senders[script.below(senders.len())];
        let frame = script.frame(from);
        if frame.len() < 14 + 40 && !is_in_xdp() {
            return Ok(()); // The kernel's run takes no packet without a whole IP header.
        }
        let (program, oracle) = (kernel.judge(from, &frame), world.judge(from, &frame));
        let shown = program.map_or_else(|reason| reason.name(), |_| "delivered");
        *results.borrow_mut().entry(shown.to_owned()).or_default() += 1;
        if program == oracle {
            return Ok(());
        }
        Err(TestCaseError::fail(format!("{from}: {frame:02x?}: program {program:?}, oracle {oracle:?}")))
    });
    compared.unwrap();
    results.into_inner()
}

#[test]
fn program_and_oracle_agree_on_random_frames() {
    let Some(bed) = Bed::without_switch() else { return };
    bed.host.ip("link set ga mtu 100").unwrap();
    bed.host.ip("link set wan mtu 110").unwrap();
    let without =
        |name: &str| ports().into_iter().filter(|port| port.interface != name).collect::<Vec<Port>>();
    let mut seen = BTreeMap::new();
    for (list, gone) in
        [(ports(), None), (without("wan"), None), (without("ga"), None), (ports(), Some("b1"))]
    {
        bed.apply(&list).unwrap();
        if let Some(gone) = gone {
            bed.host.ip(&format!("link del {gone}")).unwrap();
        }
        let mtu = |name: &str| match name {
            "ga" => 100,
            "wan" => 110,
            _ => 1500,
        };
        let there = list.iter().map(|port| port.interface.clone()).filter(|name| Some(name.as_str()) != gone);
        let mtus = there.map(|name| (name.clone(), mtu(&name))).collect();
        let world = World { ports: list.clone(), mtus };
        let results =
            bed.host.inside(|| compare(&Kernel::load(&bed), &world, p4shield_need::extent(5000, 200_000)));
        results.into_iter().for_each(|(result, count)| *seen.entry(result).or_insert(0) += count);
    }
    // Those of other tests.
    let others = [Reason::Unassigned, Reason::Rate, Reason::Checksum];
    let common = Reason::ALL.into_iter().filter(|reason| !others.contains(reason)).map(Reason::name);
    for result in common.chain(["delivered"]) {
        assert!(seen.get(result).is_some_and(|count| *count >= 10), "{result} is rare: {seen:?}");
    }
}
