//! One or two packet threads of a switch, whose rounds follow each other on one thread of the system.

use super::ports::{Memory, Port, Sum};
use crate::counts::Counts;
use crate::links::{Bell, link};
use crate::numbers::Way;
use crate::pipeline::PipelineHandle;
use crate::program::Traits;
use crate::switch::Switch;
use p4shield_bpf::Program;
use std::sync::Arc;

/// The threads. Each port is one thread's.
pub(super) struct Threads {
    first: Switch<Memory>,
    second: Option<Switch<Memory>>,
}

/// The packets that passed the ports of all threads.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) arrived: Sum,
    pub(super) sent: Sum,
    pub(super) too_long: u64,
    pub(super) lost: u64,
}

impl Threads {
    /// Makes one thread or two, with ports from number 1 on, which are the threads' in turn.
    pub(super) fn new(are_two: bool, ports: u16, program: Program, traits: Traits) -> Self {
        let io = Memory::new(ports.into());
        let mut first = Switch::new(io, (1..=ports).collect(), program, traits).expect("different numbers");
        if !are_two {
            return Self { first, second: None };
        }
        let mut second = first.seat().take(Memory::new(ports.into())).expect("different numbers");
        let bell = || -> Bell { Arc::new(|| ()) };
        let mut links = link(&[bell(), bell()]).into_iter();
        let mut linked = |switch: &mut Switch<Memory>, thread: usize| {
            let ways: Vec<_> = (0..usize::from(ports)).map(|place| way(place % 2, thread)).collect();
            switch.set_links(links.next().expect("one for each"), &ways);
            let io = switch.io();
            (0..io.places.len()).filter(|n| n % 2 != thread).for_each(|n| io.places[n] = None);
        };
        linked(&mut first, 0);
        linked(&mut second, 1);
        Self { first, second: Some(second) }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Switch<Memory>> {
        std::iter::once(&mut self.first).chain(&mut self.second)
    }

    /// Returns a thread, modulo their number.
    pub(super) fn get(&mut self, number: u8) -> &mut Switch<Memory> {
        match &mut self.second {
            Some(second) if number % 2 == 1 => second,
            _ => &mut self.first,
        }
    }

    /// Returns the port in a place, whichever thread has it.
    pub(super) fn port(&mut self, place: usize) -> Option<&mut Port> {
        self.all().find_map(|switch| switch.io().port(place))
    }

    /// Adds a port to the thread with this number, and its way to the other. Returns true if it was added.
    pub(super) fn add_port(&mut self, number: u16, port: &mut Option<Port>, owner: u8) -> bool {
        let owner = if self.second.is_some() { usize::from(owner % 2) } else { 0 };
        let mut threads: Vec<_> = self.all().collect();
        if threads[owner].add_port(number, port).is_err() {
            return false;
        }
        for (thread, switch) in threads.iter_mut().enumerate() {
            if thread != owner {
                switch.add_port(number, &mut None).expect("the other thread has the same ports");
            }
            switch.set_port_way(number, way(owner, thread)).expect("it was added");
        }
        true
    }

    /// Deletes a port from all threads. Returns true if there was one.
    pub(super) fn delete_port(&mut self, number: u16, port: &mut Option<Port>) -> bool {
        let mut deleted = true;
        for switch in self.all() {
            let mut part = None;
            deleted &= switch.delete_port(number, &mut part).is_ok();
            *port = port.take().or(part);
        }
        deleted
    }

    /// Exchanges a port with that of the thread that has it.
    pub(super) fn exchange_port(&mut self, number: u16, port: &mut Option<Port>) {
        let has = |switch: &Switch<Memory>| {
            let place = switch.local.exit.place_of(number);
            place.is_ok_and(|place| switch.local.exit.ways[place].thread.is_none())
        };
        if let Some(switch) = self.all().find(|switch| has(switch)) {
            drop(switch.exchange_port(number, port));
        }
    }

    /// Gives the second thread a program of its own, with the groups and sessions of the first one's.
    pub(super) fn spread(&mut self, program: Program, traits: Traits) {
        let Self { first, second: Some(second) } = self else { return };
        first.stop_recording();
        let traffic = &first.pipeline().traffic;
        let (groups, sessions) = (traffic.groups.clone(), traffic.sessions.clone());
        drop(second.exchange_pipeline(PipelineHandle::new(program, traits, groups, sessions)));
    }

    /// Has the second thread share the first one's program.
    pub(super) fn gather(&mut self) {
        let Self { first, second: Some(second) } = self else { return };
        drop(second.exchange_pipeline(first.pipeline_handle()));
    }

    /// Returns the packets on their way from one thread to the other.
    pub(super) fn handed(&mut self) -> u64 {
        self.all().map(|switch| switch.local.exit.links.waiting()).sum()
    }

    /// Returns the sums of the counts.
    pub(super) fn counts(&mut self) -> Counts {
        let mut sum = Counts::default();
        for switch in self.all() {
            sum.add(switch.counts());
            sum.ports.extend(&switch.counts().ports);
        }
        sum
    }

    pub(super) fn passed(&mut self) -> Passed {
        let mut sum = Passed::default();
        for switch in self.all() {
            let sent = switch.io().sent();
            let Memory { arrived, too_long, lost, .. } = switch.io();
            for (sum, part) in [(&mut sum.arrived, *arrived), (&mut sum.sent, sent)] {
                sum.packets += part.packets;
                sum.bytes += part.bytes;
            }
            sum.too_long += *too_long;
            sum.lost += *lost;
        }
        sum
    }
}

/// Returns the way of a thread to a port of another one, or its own.
fn way(owner: usize, thread: usize) -> Way {
    let other = u8::try_from(owner).ok().filter(|_| owner != thread);
    Way { thread: other, has_queue: owner == thread }
}
