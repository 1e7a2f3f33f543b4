//! Random traffic, random clocks and hostile P4 VMs against the mediator's promises: every packet
//! comes out once, in order and counted, and a tenant with an honest P4 VM is unaffected by the
//! others.

use crate::common::*;
use p4shield_abi::channel::{Geometry, Request, VERDICT_HEAD};
use p4shield_channel::Memory;
use p4shield_mediator::{Config, Disposition, FailPolicy, Mediator, Reason, ReleasedPacket};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Tenants 0 (drop) and 1 (pass) have hostile P4 VMs; tenant 2 has an honest one.
const HONEST: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// From one machine to another; see [`MACHINES`].
    Submit(usize, usize),
    /// Several packets in one call.
    Burst(Vec<(usize, usize)>),
    /// Room in the poll.
    Poll(usize),
    /// Nanoseconds.
    Advance(u64),
    /// Tenant, number of answers of its hostile P4 VM in order, and a word that selects the answers.
    Answer(usize, usize, u64),
    /// A hostile tenant's P4 VM writes a word somewhere among the answers and frames.
    HostileWrite(usize, usize, u64),
    /// A hostile tenant's P4 VM adds to its index.
    AdvanceIndex(usize, u32),
    /// A new channel, or none.
    Replace(usize, bool),
}

/// Last byte of the addresses: the VMs of the three tenants, and two foreign machines.
const MACHINES: [u8; 8] = [1, 2, 11, 12, 21, 22, 98, 99];

fn step() -> impl Strategy<Value = Step> {
    let machine = || 0..MACHINES.len();
    prop_oneof![
        12 => (machine(), machine()).prop_map(|(a, b)| Step::Submit(a, b)),
        2 => prop::collection::vec((machine(), machine()), 0..80).prop_map(Step::Burst),
        4 => (0_usize..12).prop_map(Step::Poll),
        2 => (0..DEADLINE).prop_map(Step::Advance),
        5 => (0_usize..2, 1_usize..6, any::<u64>()).prop_map(|(t, n, w)| Step::Answer(t, n, w)),
        1 => (0_usize..2, 0_usize..400, any::<u64>()).prop_map(|(t, at, w)| Step::HostileWrite(t, at, w)),
        1 => (0_usize..2, 0_u32..4).prop_map(|(t, by)| Step::AdvanceIndex(t, by)),
        1 => (0_usize..2, any::<bool>()).prop_map(|(t, some)| Step::Replace(t, some)),
    ]
}

/// Machines as submitted, the programs of hostile tenants that judged the packet, and the addresses
/// with which it left. All are needed: packets of different queues may leave with the same addresses
/// in any order, and a packet may be let through a queue before a program judges it there.
type Flow = ((usize, usize), Vec<Judged>, (u8, u8));

/// Tenant, VM and direction of a program that judged a packet.
type Judged = (usize, u16, u8);

struct World {
    mediator: Mediator<TestPacket>,
    p4vms: Vec<Option<P4vm>>,
    now: u64,
    /// Machines of each packet in the mediator.
    inside: BTreeMap<u32, (usize, usize)>,
    submitted: u32,
    /// Programs of hostile tenants that judged each packet.
    judged: BTreeMap<u32, Vec<Judged>>,
    /// The newest packet of each flow that passed.
    passed: BTreeMap<Flow, u32>,
}

fn config() -> Config {
    let mut config = tenants(3);
    config.tenants[1].fail = FailPolicy::Pass;
    config.tenants[HONEST].max_held = 4096;
    config
}

fn geometry(tenant: usize) -> Geometry {
    if tenant == HONEST { Geometry { slots: 4096, ..GEOMETRY } } else { GEOMETRY }
}

/// Returns the verdict of the honest tenant's program, by the packet's serial number.
fn verdict(serial: u32) -> Disposition {
    if serial.is_multiple_of(3) { Disposition::Drop(Reason::Program) } else { Disposition::Pass }
}

fn serial_of(header: &[u8]) -> u32 {
    u32::from_be_bytes(header[SERIAL_AT..SERIAL_AT + 4].try_into().expect("four bytes"))
}

fn honest(_: &Request, header: &[u8]) -> Action {
    if verdict(serial_of(header)) == Disposition::Pass { Action::Pass } else { Action::Drop }
}

impl World {
    fn new() -> Self {
        let mut mediator = mediator(&config());
        let p4vms = (0..3).map(|t| Some(attach(&mut mediator, 0, t, geometry(t)))).collect();
        let (inside, judged, passed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { mediator, p4vms, now: 0, inside, submitted: 0, judged, passed }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit(from, to) => self.submit(from, to),
            Step::Burst(paths) => self.burst(&paths),
            Step::Poll(room) => self.poll(room),
            Step::Advance(by) => {
                // The honest P4 VM answers before the time advances.
                self.answer_honestly();
                self.now += by;
            }
            Step::Answer(t, max, word) => self.answer(t, max, word),
            Step::HostileWrite(t, at, word) => {
                if let Some(p4vm) = &self.p4vms[t] {
                    p4vm.memory.store_u64(GEOMETRY.answers() + at * 8 % 0x400, word, Ordering::Relaxed);
                }
            }
            Step::AdvanceIndex(t, by) => {
                if let Some(p4vm) = &self.p4vms[t] {
                    let index = p4vm.memory.load_u32(VERDICT_HEAD, Ordering::Relaxed);
                    p4vm.memory.store_u32(VERDICT_HEAD, index.wrapping_add(by), Ordering::Relaxed);
                }
            }
            Step::Replace(t, true) => {
                self.p4vms[t] = Some(attach(&mut self.mediator, self.now, t, geometry(t)));
            }
            Step::Replace(t, false) => {
                self.p4vms[t] = None;
                self.mediator.replace_channel(self.now, t, None).expect("the tenant exists");
            }
        }
        self.check_counters();
    }

    /// The honest P4 VM answers all requests, a batch at a time.
    fn answer_honestly(&mut self) {
        self.mediator.flush(self.now);
        loop {
            let answered = self.p4vms[HONEST].as_mut().expect("always there").answer(usize::MAX, &mut honest);
            self.poll(usize::MAX);
            if answered == 0 {
                break;
            }
        }
    }

    fn packet(&mut self, from: usize, to: usize) -> TestPacket {
        let serial = self.submitted;
        self.submitted += 1;
        self.inside.insert(serial, (from, to));
        packet(serial, MACHINES[from], MACHINES[to])
    }

    fn submit(&mut self, from: usize, to: usize) {
        let packet = self.packet(from, to);
        if let Some(released) = self.mediator.submit(self.now, &SHARED, packet) {
            self.out(&released);
        }
    }

    fn burst(&mut self, paths: &[(usize, usize)]) {
        let packets: Vec<_> = paths.iter().map(|(from, to)| self.packet(*from, *to)).collect();
        let mut out = Vec::new();
        self.mediator.submit_burst(self.now, &SHARED, packets, |released| out.push(released));
        assert!(out.len() <= paths.len(), "at most one for each");
        for released in &out {
            self.out(released);
        }
    }

    fn poll(&mut self, room: usize) {
        let mut out = Vec::new();
        let passed = self.mediator.poll(self.now, room, |released| out.push(released));
        assert!(passed <= room, "no more than the room");
        assert_eq!(out.iter().filter(|r| r.disposition == Disposition::Pass).count(), passed);
        for released in &out {
            self.out(released);
        }
    }

    fn answer(&mut self, t: usize, max: usize, word: u64) {
        let Some(p4vm) = &mut self.p4vms[t] else { return };
        let judged = &mut self.judged;
        p4vm.answer(max, &mut |request, header| {
            judged.entry(serial_of(header)).or_default().push((t, request.vm, request.direction));
            match word >> (request.id % 32) & 3 {
                0 => Action::Drop,
                1 => Action::Pass,
                // Another address, perhaps another tenant's.
                _ => {
                    let mut new = header.to_vec();
                    let at = if word & 0x100 == 0 { 29 } else { 33 };
                    new[at] = MACHINES[word as usize % MACHINES.len()];
                    Action::Rewrite(new, 0)
                }
            }
        });
    }

    fn out(&mut self, released: &ReleasedPacket<TestPacket>) {
        let serial = released.packet.serial;
        let path = self.inside.remove(&serial).expect("a packet comes out once, after it went in");
        if released.disposition == Disposition::Pass {
            // A program that changes addresses makes another flow.
            let judged = self.judged.remove(&serial).unwrap_or_default();
            let addresses = (released.packet.bytes[29], released.packet.bytes[33]);
            let before = self.passed.insert((path, judged, addresses), serial);
            assert!(before < Some(serial), "order within a flow: {before:?} before {serial}");
        }
        // Packets that only the honest tenant judges: between its VMs and foreign machines.
        if let (4 | 5, 6 | 7) | (6 | 7, 4 | 5) = path {
            assert_eq!(released.disposition, verdict(serial), "an honest tenant's packet {serial}");
        }
        if let (6 | 7, 6 | 7) = path {
            assert_eq!(released.disposition, Disposition::Pass, "an unowned packet");
        }
    }

    /// Checks `in = passed + let through + dropped + held` for each VM and direction.
    fn check_counters(&self) {
        let counters = self.mediator.counters();
        let directions = counters.tenants.iter().flat_map(|t| &t.vms).flat_map(|vm| &vm.directions);
        let held: u64 = directions.map(|d| d.read().held).sum();
        assert_eq!(held, self.mediator.held() as u64);
        assert_eq!(held, self.inside.len() as u64, "packets that are not held have left");
    }

    /// All packets come out in the end, whatever the P4 VMs do.
    fn finish(mut self) {
        self.step(Step::Advance(DEADLINE));
        for _ in 0..3 {
            self.now += DEADLINE;
            self.answer_honestly();
        }
        assert_eq!((self.mediator.held(), self.inside.len()), (0, 0));
        assert!(self.mediator.is_attached(HONEST), "the honest P4 VM keeps its channel");
        let honest = &self.mediator.counters().tenants[HONEST];
        assert_eq!((honest.late.get(), honest.faults.get()), (0, 0));
        for direction in honest.vms.iter().flat_map(|vm| &vm.directions) {
            let counts = direction.read();
            let by_program = counts.passed + counts.dropped_for(Reason::Program);
            assert_eq!(counts.packets_in, by_program, "each was judged: {counts:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conservation_order_isolation(steps in prop::collection::vec(step(), 1..300)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.finish();
    }
}

proptest! {
    /// The mediator takes any bytes as a packet.
    #[test]
    fn any_bytes_are_a_packet(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..40),
    ) {
        let mut m = mediator(&tenants(1));
        let _p4vm = attach(&mut m, 0, 0, GEOMETRY);
        let (mut out, count) = (0, packets.len());
        for (serial, bytes) in (0..).zip(packets) {
            out += usize::from(m.submit(0, &SHARED, TestPacket { serial, bytes, segment: WHOLE }).is_some());
        }
        m.poll(DEADLINE, usize::MAX, |_| out += 1);
        prop_assert_eq!(out, count);
    }
}

/// Parses random bytes that resemble packets, the same in each run.
#[test]
fn parser_campaign() {
    let budget = p4shield_need::extent(1 << 20, 1 << 25);
    let mut state = 5_u64;
    let mut spent = 0_usize;
    let types = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8], [8, 6]];
    while spent < budget {
        let mut bytes: Vec<u8> = (0..16)
            .flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 32).to_le_bytes()
            })
            .collect();
        for at in [12, 16, 20] {
            let kind = types[usize::from(bytes[at]) % types.len()];
            bytes[at..at + 2].copy_from_slice(&kind);
        }
        bytes.truncate(usize::from(bytes[0]) % 120);
        spent += bytes.len() + 1;
        let _ = p4shield_mediator::classify(&bytes, bytes.len());
    }
}
