//! Ports that come and go.

use super::{Memory, compiled, load, packet, router};
use crate::{DropReason, ExchangePorts, MAX_PORTS, PortError, QueueLimits, Refused, Switch, Unsent};
use p4shield_traffic::Copy;
use std::collections::VecDeque;

/// A port is what waits in it, and is not sent: the last packets of its output.
impl ExchangePorts for Memory {
    type Port = usize;

    fn exchange(&mut self, place: usize, port: &mut Option<usize>) -> Result<(), Refused> {
        if place >= MAX_PORTS {
            return Err(Refused("no place"));
        }
        if place == self.there.len() {
            self.input.push(VecDeque::new());
            self.output.push(Vec::new());
            self.there.push(false);
            self.up.push(true);
        }
        let is_there = std::mem::replace(&mut self.there[place], port.is_some());
        *port = is_there.then_some(self.output[place].len());
        Ok(())
    }

    fn unsent(&mut self, place: usize) -> Unsent {
        let waits = self.there[place] && !self.up[place];
        let packets = if waits { std::mem::take(&mut self.output[place]) } else { Vec::new() };
        Unsent { packets: packets.len() as u64, bytes: packets.iter().map(|p| p.len() as u64).sum() }
    }

    fn set_up(&mut self, place: usize, up: bool) {
        self.up[place] = up;
    }

    fn lost(&self, place: usize) -> Option<&'static str> {
        (self.there[place] && self.input[place].front().is_some_and(Vec::is_empty)).then_some("it is empty")
    }
}

/// Sends a packet from port 1 to each of these.
fn send(switch: &mut Switch<Memory>, ports: &[u8]) {
    switch.io().input[0].extend(ports.iter().map(|port| packet([10, 0, *port, 1], 6, 0)));
    switch.round().unwrap();
    assert!(switch.counts().balance(), "{:?}", switch.counts());
}

fn dropped(switch: &Switch<Memory>) -> [u64; 3] {
    [DropReason::NoPort, DropReason::PortDown, DropReason::NoRoom].map(|r| switch.counts().dropped(r))
}

#[test]
fn a_port_that_is_down_drops_and_keeps_its_number() {
    let mut switch = router();
    switch.set_port_up(2, false).unwrap();
    send(&mut switch, &[2, 3]);
    assert_eq!(dropped(&switch), [0, 1, 0]);
    switch.set_port_up(2, true).unwrap();
    send(&mut switch, &[2]);
    assert_eq!((switch.io().output[1].len(), switch.io().output[2].len()), (1, 1));
    assert_eq!(switch.set_port_up(9, true), Err(PortError::NoPort(9)));
}

#[test]
fn a_port_without_an_interface_drops_until_there_is_one() {
    let mut switch = router();
    let mut port = None;
    switch.exchange_port(2, &mut port).unwrap();
    assert_eq!(port, Some(0), "what was there");
    send(&mut switch, &[2, 2]);
    assert_eq!(dropped(&switch), [0, 2, 0]);
    switch.exchange_port(2, &mut port).unwrap();
    assert_eq!(port, None);
    send(&mut switch, &[2]);
    assert_eq!((dropped(&switch), switch.io().output[1].len()), ([0, 2, 0], 1));
}

#[test]
fn packets_that_a_lost_port_had_not_sent_are_dropped() {
    let mut switch = router();
    send(&mut switch, &[2, 2, 3]);
    assert_eq!(switch.counts().ports[1].sent, 2);
    switch.set_port_up(2, false).unwrap();
    switch.exchange_port(2, &mut None).unwrap();
    let counts = switch.counts();
    assert_eq!((counts.ports[1].sent, counts.ports[1].sent_bytes), (0, 0));
    assert!(counts.balance() && dropped(&switch) == [0, 2, 0], "{:?}", switch.counts());
}

#[test]
fn a_deleted_port_is_no_port_and_its_counts_stay() {
    let mut switch = router();
    switch.pipeline().traffic.groups.set(7, [1, 2].map(|port| Copy { port, replica: 0 }).to_vec()).unwrap();
    send(&mut switch, &[2, 3]);
    let mut port = None;
    switch.delete_port(2, &mut port).unwrap();
    assert_eq!(port, Some(1));
    send(&mut switch, &[2, 2]);
    assert_eq!(dropped(&switch), [2, 0, 0]);
    switch.io().input[0].push_back(packet([10, 0, 1, 1], 17, 0));
    switch.round().unwrap();
    assert_eq!(dropped(&switch), [3, 0, 0], "the copy of the group");
    assert_eq!(switch.counts().deleted.sent, 1);
    assert!(switch.counts().balance(), "{:?}", switch.counts());
    assert_eq!(switch.delete_port(2, &mut None), Err(PortError::NoPort(2)));
    assert_eq!(switch.port_counts().map(|(number, _)| number).collect::<Vec<_>>(), [1, 3]);

    // Another port takes the place, and begins at zero.
    switch.add_port(4, &mut port).unwrap();
    assert_eq!(port, None);
    switch.io().output[1].clear();
    send(&mut switch, &[4, 2]);
    assert_eq!((dropped(&switch), switch.counts().ports[1].sent), ([4, 0, 0], 1));
    assert_eq!(switch.io().output.len(), 3);
}

#[test]
fn a_queue_ends_with_its_port() {
    let mut switch = router();
    let limits = QueueLimits { packets: Some(1), ..QueueLimits::default() };
    switch.set_queue(2, Some(limits)).unwrap();
    send(&mut switch, &[2, 2, 2]);
    let waiting = switch.counts().waiting;
    assert!(waiting >= 2);
    switch.delete_port(2, &mut None).unwrap();
    assert_eq!((switch.counts().waiting, dropped(&switch)), (0, [0, waiting, 0]));
    assert!(switch.counts().balance() && switch.queues().is_empty());
    switch.add_port(2, &mut Some(0)).unwrap();
    send(&mut switch, &[2]);
    assert_eq!((switch.counts().waiting, switch.queue_limits(2)), (0, Ok(None)));
}

#[test]
fn a_switch_has_as_many_ports_as_numbers() {
    let mut switch = router();
    let room = (switch.local.exit.numbers.capacity(), switch.local.exit.ways.capacity());
    for number in (0..MAX_PORTS as u16).filter(|n| !(1..=3).contains(n)) {
        switch.add_port(number, &mut Some(0)).unwrap();
    }
    assert_eq!((switch.local.exit.numbers.capacity(), switch.local.exit.ways.capacity()), room);
    let mut port = Some(0);
    assert_eq!(switch.add_port(3, &mut port), Err(PortError::Twice(3)));
    assert_eq!(switch.add_port(512, &mut port), Err(PortError::TooLarge(512)));
    assert_eq!(port, Some(0), "it is not lost");
    send(&mut switch, &[4]);
    assert_eq!(switch.counts().ports.iter().map(|p| p.sent).sum::<u64>(), 1);
}

#[test]
fn a_lost_port_is_named_with_the_reason() {
    let mut switch = router();
    switch.io().input[2].push_back(Vec::new());
    assert_eq!(switch.lost_ports().collect::<Vec<_>>(), [(3, "it is empty")]);
    switch.exchange_port(3, &mut None).unwrap();
    assert_eq!(switch.lost_ports().next(), None);
}

#[test]
fn a_filter_connects_the_two_ports_that_are_left() {
    let text = r"
#include <ebpf_model.p4>
header ethernet_t { bit<112> all; }
struct headers { ethernet_t ethernet; }
parser p(packet_in packet, out headers hdr) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control c(inout headers hdr, out bool pass) { apply { pass = true; } }
ebpfFilter(p(), c()) main;
";
    let (program, traits) = load(&compiled(text));
    let mut switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
    let sent = |switch: &mut Switch<Memory>, port: usize| {
        switch.io().input[port].push_back(packet([10, 0, 0, 1], 6, 0));
        switch.round().unwrap();
        switch.counts().ports.iter().map(|p| p.sent).collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut switch, 0), [1, 0, 0], "with three ports, back by its own");
    switch.delete_port(2, &mut None).unwrap();
    assert_eq!(sent(&mut switch, 0), [1, 0, 1]);
    assert_eq!(sent(&mut switch, 2), [2, 0, 1]);
    switch.delete_port(1, &mut None).unwrap();
    assert_eq!(sent(&mut switch, 2), [0, 0, 2]);
}
