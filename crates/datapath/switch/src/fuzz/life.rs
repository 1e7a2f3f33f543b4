//! The life itself: events, and what holds after each.

use super::compartment::Compartment;
use super::draw::Draw;
use super::ports::{Memory, Port, Sum};
use super::programs::{Programs, names};
use super::threads::{Passed, Threads};
use crate::counts::DropReason;
use crate::queue::QueueLimits;
use crate::record::RecordFilter;
use crate::switch::Switch;
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_bpf::Mode;
use p4shield_bpf::maps::UpdateFlag;
use p4shield_traffic::{Copy, MAX_COPIES, MAX_RUNS, Session};
use std::time::Duration;

/// Most events of a life.
const EVENTS: usize = 200;
/// Most packets that wait to be received at a port.
const INPUT: usize = 100;
/// Rounds after which packets that still wait are those of a program that clones without end.
const ROUNDS: usize = 300;
/// Numbers of the programs, as often as they are chosen.
const MOSTLY: [usize; 12] = [0, 1, 0, 1, 0, 2, 3, 4, 5, 6, 5, 6];
/// Numbers of ports at the beginning.
const PORTS: [u16; 8] = [3, 4, 2, 3, 1, 4, 3, 0];
/// Bits of the second byte of a packet for `requests.p4`: what it asks for has an end.
const BOUNDED: u8 = 0b111;
/// Registers in which a program counts its runs.
const RUNS: [&str; 2] = ["runs_in", "runs_out"];

/// Plays what the bytes say.
///
/// # Panics
/// A packet is not accounted for, or causes too many runs.
pub fn life(programs: &Programs, bytes: &[u8]) {
    let mut life = Life::begin(programs, Draw(bytes));
    for _ in 0..EVENTS {
        if life.draw.is_empty() {
            break;
        }
        life.event();
        life.check();
    }
    life.drain();
}

struct Life<'a> {
    draw: Draw<'a>,
    programs: &'a Programs,
    /// Number of the program that runs.
    program: usize,
    mode: Mode,
    threads: Threads,
    /// The compartments of both threads.
    compartments: [Compartment; 2],
    /// Packets that were injected.
    injected: Sum,
    /// A port that was deleted.
    spare: Option<Port>,
}

impl<'a> Life<'a> {
    fn begin(programs: &'a Programs, mut draw: Draw<'a>) -> Self {
        let program = MOSTLY[draw.below(MOSTLY.len())];
        // To compile a program takes longer than a life of packets that are interpreted.
        let mode = if draw.below(16) == 0 { Mode::Jit } else { Mode::Interpreter };
        let (loaded, traits) = programs.load(program, mode);
        let ports = PORTS[draw.below(PORTS.len())];
        let threads = Threads::new(draw.flag(), ports, loaded, traits);
        let compartments = <[Compartment; 2]>::default();
        let mut life = Self {
            draw,
            programs,
            program,
            mode,
            threads,
            compartments,
            injected: Sum::default(),
            spare: None,
        };
        (0..2).for_each(|thread| life.set_calls(thread));
        life
    }

    /// Gives a thread another compartment, or none.
    fn set_calls(&mut self, thread: u8) {
        let Self { draw, threads, compartments, .. } = self;
        let compartment = &mut compartments[usize::from(thread % 2)];
        *compartment = Compartment::default();
        let settings = (draw.below(8) > 0).then(|| compartment.settings(draw));
        drop(threads.get(thread).set_calls(settings.map(Box::new)));
    }

    /// Draws a thread.
    fn switch(&mut self) -> &mut Switch<Memory> {
        let number = self.draw.byte();
        self.threads.get(number)
    }

    fn event(&mut self) {
        match self.draw.below(30) {
            0..=4 => self.arrive(),
            5..=9 => drop(self.switch().round()),
            10 => self.inject(),
            11 => self.write(),
            12 => self.group(),
            13 => self.session(),
            14 => self.queue(),
            15..=16 => self.exchange(),
            17..=18 => self.disturb(),
            19 => self.replace(),
            20 => self.record(),
            21 => self.take_records(),
            22 => self.set_twin(),
            23 => self.spread(),
            24 => self.threads.gather(),
            25..=27 => {
                let thread = self.draw.byte() % 2;
                self.compartments[usize::from(thread)].act(&mut self.draw);
            }
            28 => {
                let thread = self.draw.byte();
                self.set_calls(thread);
            }
            _ => {
                let time = Duration::from_micros(self.draw.word().into()) * 100;
                self.threads.all().for_each(|switch| switch.pass(time));
            }
        }
    }

    /// Draws a packet: its first bytes, and its length. Runs without end take long, so that few ask for
    /// them.
    fn packet(&mut self, may_be_endless: bool) -> Vec<u8> {
        let len = match self.draw.below(8) {
            0 => self.draw.below(20),
            1 => usize::from(self.draw.word()) % 12_000,
            2 => MAX_HEADER_BYTES as usize - self.draw.below(4),
            _ => 64,
        };
        let mut packet = self.draw.filled(16, len);
        if let Some([_, only, port, session, group @ .., _, _]) = packet.first_chunk_mut::<8>() {
            if !may_be_endless {
                *only |= BOUNDED;
            }
            // Mostly what may exist.
            if self.draw.below(8) > 0 {
                (*port, *session) = (*port % 5, *session % 4);
                *group = [0, group[1] % 4];
            }
        }
        packet
    }

    fn arrive(&mut self) {
        let (place, count) = (self.draw.below(6), 1 + self.draw.below(40));
        let packet = self.packet(false);
        if let Some(port) = self.threads.port(place) {
            let room = INPUT - port.input.len();
            port.input.extend(std::iter::repeat_n(packet, count.min(room)));
        }
    }

    fn inject(&mut self) {
        let number = self.number();
        let may_be_endless = self.draw.below(64) == 0;
        let packet = self.packet(may_be_endless);
        let switch = self.threads.get(self.draw.byte());
        let before = RUNS.map(|name| runs_of(switch, name));
        let injected = switch.inject(number, &packet).is_ok();
        let after = RUNS.map(|name| runs_of(switch, name));
        if injected {
            self.injected.add(packet.len());
        }
        for (after, before) in after.into_iter().zip(before) {
            let runs = after.wrapping_sub(before);
            // The first run is none behind the first.
            assert!(runs as usize <= MAX_RUNS + 1, "{runs} runs of one packet");
        }
    }

    /// Draws the number of a port: mostly one that may exist.
    fn number(&mut self) -> u16 {
        if self.draw.below(16) == 0 { self.draw.word() } else { 1 + self.draw.below(4) as u16 }
    }

    /// Writes or deletes an entry of a map, also one that no table has.
    fn write(&mut self) {
        let Self { draw, threads, .. } = self;
        let switch = threads.get(draw.byte());
        let (at, flag, deletes) = (draw.byte(), draw.below(3), draw.below(4) == 0);
        let names = names(switch.pipeline().program());
        let Some(map) = names.get(usize::from(at) % names.len().max(1)) else { return };
        let mut pipeline = switch.pipeline();
        let Some(map) = pipeline.program().maps_mut().and_then(|all| all.get_mut(map)) else { return };
        let key = draw.filled(12, map.entry_key_size() as usize);
        let value = draw.filled(12, map.definition().value_size as usize);
        let flag = [UpdateFlag::Any, UpdateFlag::NoExist, UpdateFlag::Exist][flag];
        // A map may refuse any of it, and stays as it was.
        let _ = if deletes { map.delete(&key) } else { map.update(&key, &value, flag) };
        let _all = map.iter().count();
    }

    fn group(&mut self) {
        let (group, count) = (self.draw.below(4) as u16, self.draw.below(20));
        let count = if count == 19 && self.draw.below(8) == 0 { MAX_COPIES } else { count };
        let copies =
            (0..count.min(8)).map(|_| Copy { port: self.number(), replica: self.draw.byte().into() });
        let copies: Vec<_> = copies.collect();
        let groups = &mut self.switch().pipeline().traffic.groups;
        if count == 0 {
            groups.delete(group);
        } else {
            // Group 0 is refused.
            let _ = groups.set(group, copies.into_iter().cycle().take(count).collect());
        }
    }

    fn session(&mut self) {
        let session = self.draw.below(4) as u16;
        let port = self.draw.flag().then(|| self.number());
        let group = self.draw.flag().then(|| self.draw.below(4) as u16);
        let sessions = &mut self.switch().pipeline().traffic.sessions;
        if sessions.set(session, Session { port, group }).is_err() {
            sessions.delete(session);
        }
    }

    fn queue(&mut self) {
        let number = self.number();
        let draw = &mut self.draw;
        let packets = draw.flag().then(|| draw.byte().into());
        let bits = draw.flag().then(|| u64::from(draw.word()) << 6);
        let depth = draw.flag().then(|| u32::from(draw.byte()));
        let limits = draw.below(4) > 0;
        // Limits that hold nothing are refused, and a port that is not there.
        let limits = limits.then_some(QueueLimits { packets, bits, depth });
        let _ = self.switch().set_queue(number, limits);
    }

    /// Adds, deletes or exchanges a port. What is refused leaves the port with the caller.
    fn exchange(&mut self) {
        let number = self.number();
        let (owner, kind) = (self.draw.byte(), self.draw.below(4));
        let mut port = Some(self.spare.take().unwrap_or_else(Port::open));
        match kind {
            0 => {
                let added = self.threads.add_port(number, &mut port, owner);
                assert_eq!(added, port.is_none());
            }
            1 => {
                let mut none = None;
                let deleted = self.threads.delete_port(number, &mut none);
                assert!(deleted || none.is_none());
                port = none.or(port);
            }
            2 => self.threads.exchange_port(number, &mut port),
            _ => self.threads.exchange_port(number, &mut None),
        }
        self.spare = port;
    }

    /// Makes a port stuck or narrow, or sets it down or up.
    fn disturb(&mut self) {
        let number = self.number();
        let (place, room, stuck) = (self.draw.below(6), self.draw.byte(), self.draw.flag());
        if self.draw.flag() {
            // A port that is not there.
            self.threads.all().for_each(|switch| drop(switch.set_port_up(number, stuck)));
        } else if let Some(port) = self.threads.port(place) {
            (port.room, port.stuck) = (room.into(), stuck);
        }
        for switch in self.threads.all() {
            assert!(switch.lost_ports().count() <= switch.port_counts().count());
        }
    }

    fn replace(&mut self) {
        self.program = MOSTLY[self.draw.below(MOSTLY.len())];
        let (program, traits) = self.programs.load(self.program, self.mode);
        let maps = if self.draw.flag() { names(&program) } else { Vec::new() };
        self.threads.gather();
        drop(self.switch().replace(program, traits, &maps));
    }

    /// Gives each thread the program for itself, unless packets wait before its egress.
    fn spread(&mut self) {
        let (program, traits) = self.programs.load(self.program, self.mode);
        if !traits.reads_queues {
            self.threads.spread(program, traits);
        }
    }

    fn record(&mut self) {
        let draw = &mut self.draw;
        let filter = RecordFilter {
            port: draw.flag().then(|| draw.below(8) as u16),
            leaves_by: draw.flag().then(|| draw.below(8) as u16),
            through: (0..draw.below(3)).map(|_| draw.byte().into()).collect(),
            dropped: draw.flag(),
            injected: draw.flag() && draw.flag(),
        };
        let (most, traced) = (draw.below(6) as u64, draw.flag());
        let lasts = Duration::from_millis(draw.byte().into());
        self.threads.gather();
        self.switch().record(filter, most, traced, lasts);
    }

    fn take_records(&mut self) {
        let stops = self.draw.flag();
        let switch = self.switch();
        let records = switch.take_records(Duration::from_secs(1));
        assert_eq!(records.is_some(), switch.is_recording());
        if stops {
            switch.stop_recording();
        }
    }

    fn set_twin(&mut self) {
        let twin = self.draw.flag().then(|| self.programs.twin(self.program, self.mode));
        let switch = self.threads.get(0);
        drop(switch.set_twin(twin));
        assert!(!switch.is_recording());
    }

    /// Compares the counts of the switch with those of the ports.
    fn check(&mut self) {
        let counts = self.threads.counts();
        let queued: u64 = self.threads.get(0).queues().iter().map(|q| q.waiting).sum();
        let handed = self.threads.handed();
        let calling: u64 = self.threads.all().map(|switch| switch.local.calls.waiting() as u64).sum();
        assert!(
            counts.balance() && counts.waiting == queued + handed + calling,
            "{queued} + {handed} + {calling} wait; {counts:?}"
        );
        let all = counts.ports.iter().fold(counts.deleted, |sum, port| sum.plus(*port));
        let Passed { arrived, sent, too_long, lost } = self.threads.passed();
        let received = Sum {
            packets: arrived.packets + self.injected.packets,
            bytes: arrived.bytes + self.injected.bytes,
        };
        assert_eq!(Sum { packets: all.received, bytes: all.received_bytes }, received);
        assert_eq!(Sum { packets: all.sent, bytes: all.sent_bytes }, sent);
        assert!(counts.dropped(DropReason::TooLong) >= too_long, "{counts:?}");
        assert!(counts.dropped(DropReason::PortDown) >= lost, "{counts:?}");
    }

    /// Lets all packets leave.
    fn drain(&mut self) {
        self.threads.all().for_each(Switch::stop_recording);
        self.threads.all().for_each(|switch| drop(switch.set_calls(None)));
        for _ in 0..ROUNDS {
            let rounds =
                self.threads.all().map(|switch| switch.round().expect("ports in memory have no error"));
            let received: usize = rounds.sum();
            self.check();
            match self.threads.all().filter_map(|switch| switch.next_release()).max() {
                Some(due) => self.threads.all().for_each(|switch| switch.pass(due)),
                None if received == 0 => break,
                None => {}
            }
        }
        let ports: Vec<_> = self.threads.get(0).queues().iter().map(|queue| queue.port).collect();
        for port in ports {
            self.switch().set_queue(port, None).expect("it has a queue");
            self.check();
        }
        // What left the queues may be on its way to another thread, which takes a batch in a round.
        while self.threads.handed() > 0 {
            for switch in self.threads.all() {
                switch.round().expect("ports in memory have no error");
            }
            self.check();
        }
        assert_eq!((self.threads.counts().waiting, self.threads.get(0).next_release()), (0, None));
    }
}

/// Returns the runs that a register has counted; 0 without such a register.
fn runs_of(switch: &Switch<Memory>, name: &str) -> u32 {
    let mut pipeline = switch.pipeline();
    let map = pipeline.program().maps().and_then(|all| all.iter().find(|m| m.name().ends_with(name)));
    let value = map.and_then(|m| m.lookup(&[0; 4]).ok());
    value.and_then(|v| v.try_into().ok()).map_or(0, u32::from_ne_bytes)
}
