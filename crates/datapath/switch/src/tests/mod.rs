//! The switch on ports in memory, with programs of v1model, ubpf_model and ebpf_model.

mod calls;
mod channel;
mod late;
mod noted;
mod ports;
mod queues;
mod recording;
mod requests;
mod threads;
mod waiting;

use crate::{BATCH, DropReason, PacketIo, PortError, Switch, Traits};
use p4shield_bpf::maps::UpdateFlag;
use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{EngineOptions, Object, Program, link};
use p4shield_p4::{Compiled, NoIncludes, Options, compile};
use p4shield_tables::model::Match;
use p4shield_traffic::{Copy, GroupError};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Routes IPv4 by the longest prefix; protocol 17 goes to a group.
const ROUTER: &str = r"
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<64> front; bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
struct headers { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x800: ip; default: accept; }
    }
    state ip { p.extract(hdr.ipv4); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
    table lpm { key = { hdr.ipv4.dst: lpm; } actions = { forward; drop; } default_action = drop(); }
    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.protocol == 17) { std.mcast_grp = 7; }
        else if (hdr.ipv4.isValid()) { lpm.apply(); }
        else { drop(); }
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    apply { if (std.egress_rid > 0) { hdr.ethernet.src = 32w0 ++ std.egress_rid; } }
}
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// Ports whose packets are lists. A port sends at most `room` packets.
struct Memory {
    input: Vec<VecDeque<Vec<u8>>>,
    output: Vec<Vec<Vec<u8>>>,
    room: usize,
    /// True if there is a port, by place.
    there: Vec<bool>,
    /// True if it can send.
    up: Vec<bool>,
}

impl Memory {
    fn new(ports: usize) -> Self {
        Self {
            input: vec![VecDeque::new(); ports],
            output: vec![Vec::new(); ports],
            room: usize::MAX,
            there: vec![true; ports],
            up: vec![true; ports],
        }
    }
}

impl PacketIo for Memory {
    type Error = Infallible;

    fn ports(&self) -> usize {
        self.input.len()
    }

    fn receive(
        &mut self,
        port: usize,
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<usize, Infallible> {
        let count = if self.there[port] { most.min(self.input[port].len()) } else { 0 };
        self.input[port].drain(..count).for_each(|packet| each(&packet));
        Ok(count)
    }

    fn send(&mut self, port: usize, packet: &[u8]) -> bool {
        let has_room = self.is_up(port) && self.output[port].len() < self.room;
        if has_room {
            self.output[port].push(packet.to_vec());
        }
        has_room
    }

    fn is_up(&self, port: usize) -> bool {
        self.there[port] && self.up[port]
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn wait(&mut self, _: Duration, _: Option<BorrowedFd<'_>>) -> Result<(), Infallible> {
        Ok(())
    }
}

fn compiled(text: &str) -> Compiled {
    compiled_with(text, &Options::default())
}

pub(crate) fn compiled_with(text: &str, options: &Options) -> Compiled {
    compile("test.p4", text, &NoIncludes, options).unwrap_or_else(|e| panic!("{e}"))
}

fn load(compiled: &Compiled) -> (Program, Traits) {
    let linked = link(&[Object::parse(&compiled.object).unwrap()]).unwrap();
    let (verified, _) = verify(linked, &Limits::default()).unwrap();
    let object = Object::parse(&compiled.object).unwrap();
    let traits = Traits {
        architecture: compiled.facts.architecture,
        divided: object.is_divided(),
        reads_queues: object.reads_queues(),
    };
    (Program::load(&verified, &EngineOptions::default()).unwrap(), traits)
}

/// A switch with ports 1, 2 and 3 that routes 10.0.N.0/24 to port N.
fn router() -> Switch<Memory> {
    let compiled = compiled(ROUTER);
    let (program, traits) = load(&compiled);
    let switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
    let table = &compiled.facts.tables[0];
    let map = table.map.as_deref().unwrap();
    for port in 1..=4_u32 {
        let prefix = Match::Prefix((0x0a00_0000_u32 | port << 8).into(), 24);
        let (key, value) = (table.entry_key(&[prefix], 0), table.action_value(0, &[port.into()]));
        let mut pipeline = switch.pipeline();
        let map = pipeline.program().maps_mut().unwrap().get_mut(map).unwrap();
        map.update(&key.unwrap(), &value.unwrap(), UpdateFlag::Any).unwrap();
    }
    switch
}

fn packet(destination: [u8; 4], protocol: u8, payload: usize) -> Vec<u8> {
    let ip = [[0x45, 0, 0, 0, 0, 0, 0, 0].as_slice(), &[64, protocol, 0, 0], &[10, 0, 0, 9], &destination];
    [&[2; 12], &[8, 0][..], &ip.concat(), &vec![0xab; payload]].concat()
}

#[test]
fn packets_leave_by_the_port_of_the_longest_prefix() {
    let mut switch = router();
    let sent: Vec<_> = (0..100).map(|n| packet([10, 0, 1 + n % 3, n], 6, usize::from(n) * 10)).collect();
    switch.io().input[0].extend(sent.iter().cloned());
    while switch.round().unwrap() > 0 {}
    for port in 0..3_u8 {
        let mut want: Vec<_> = sent.iter().filter(|p| p[32] == port + 1).cloned().collect();
        want.iter_mut().for_each(|p| p[22] -= 1);
        assert_eq!(switch.io().output[usize::from(port)], want, "in their order, with everything behind");
    }
    assert!(switch.counts().balance());
}

#[test]
fn a_round_takes_one_batch_of_each_port() {
    let mut switch = router();
    for port in 0..2 {
        switch.io().input[port].extend((0..100).map(|n| packet([10, 0, 3, n], 6, 0)));
    }
    assert_eq!(switch.round().unwrap(), 2 * BATCH);
    assert_eq!(switch.io().output[2].len(), 2 * BATCH);
}

#[test]
fn copies_of_a_group_have_their_port_and_number() {
    let mut switch = router();
    let copies = [(1, 5), (3, 6), (3, 7), (9, 8)].map(|(port, replica)| Copy { port, replica });
    switch.pipeline().traffic.groups.set(7, copies.to_vec()).unwrap();
    let sent = packet([10, 0, 1, 1], 17, 30);
    switch.io().input[1].push_back(sent.clone());
    switch.round().unwrap();
    let numbered = |replica: u8| [&sent[..6], &[0, 0, 0, 0, 0, replica], &sent[12..]].concat();
    assert_eq!(switch.io().output, [vec![numbered(5)], vec![], vec![numbered(6), numbered(7)]]);
    let counts = switch.counts();
    assert_eq!((counts.replicated, counts.copies, counts.dropped(DropReason::NoPort)), (1, 4, 1));
    assert!(counts.balance());
}

#[test]
fn each_drop_has_its_reason() {
    let mut switch = router();
    switch.io().room = 2;
    let packets = [
        packet([192, 0, 2, 1], 6, 0),
        packet([10, 0, 4, 1], 6, 0),
        packet([10, 0, 1, 1], 17, 0),
        packet([10, 0, 1, 1], 6, 10_000),
        packet([10, 0, 2, 1], 6, 0),
        packet([10, 0, 2, 2], 6, 0),
        packet([10, 0, 2, 3], 6, 0),
    ];
    switch.io().input[0].extend(packets);
    switch.round().unwrap();
    let counts = switch.counts().clone();
    let dropped = DropReason::ALL.map(|reason| (reason.name(), counts.dropped(reason)));
    let once = ["program", "no_port", "no_group", "no_room", "too_long"];
    assert!(dropped.iter().all(|(name, n)| *n == u64::from(once.contains(name))), "{dropped:?}");
    assert_eq!(counts.ports[1].sent, 2);
    assert!(counts.balance());
}

#[test]
fn a_filter_connects_two_ports() {
    let text = r"
#include <ebpf_model.p4>
header ethernet_t { bit<96> addresses; bit<16> type; }
struct headers { ethernet_t ethernet; }
parser p(packet_in packet, out headers hdr) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control c(inout headers hdr, out bool pass) { apply { pass = hdr.ethernet.type == 0x800; } }
ebpfFilter(p(), c()) main;
";
    let (program, traits) = load(&compiled(text));
    let mut switch = Switch::new(Memory::new(2), vec![0, 1], program, traits).unwrap();
    let ip = packet([10, 0, 0, 1], 6, 0);
    let arp = [&ip[..12], &[8, 6], &ip[14..]].concat();
    for port in 0..2 {
        switch.io().input[port].extend([ip.clone(), arp.clone()]);
    }
    switch.round().unwrap();
    assert_eq!(switch.io().output, [vec![ip.clone()], vec![ip]]);
    assert_eq!(switch.counts().dropped(DropReason::Program), 2);
}

#[test]
fn ports_have_one_number_each() {
    let (program, traits) = load(&compiled(ROUTER));
    let (verified, of) =
        (program, |numbers: Vec<u16>, program| Switch::new(Memory::new(2), numbers, program, traits).err());
    assert_eq!(of(vec![1, 1], verified), Some(PortError::Twice(1)));
    assert_eq!(of(vec![1, 512], load(&compiled(ROUTER)).0), Some(PortError::TooLarge(512)));
    let numbers = Some(PortError::Numbers { ports: 2, numbers: 1 });
    assert_eq!(of(vec![1], load(&compiled(ROUTER)).0), numbers);
}

#[test]
fn groups_that_no_packet_can_name_are_refused() {
    let switch = router();
    assert_eq!(switch.pipeline().traffic.groups.set(0, Vec::new()), Err(GroupError::Zero));
    let many = vec![Copy { port: 1, replica: 0 }; 5000];
    assert_eq!(switch.pipeline().traffic.groups.set(1, many), Err(GroupError::TooMany(5000)));
    switch.pipeline().traffic.groups.set(1, vec![Copy { port: 1, replica: 0 }]).unwrap();
    assert!(switch.pipeline().traffic.groups.delete(1) && !switch.pipeline().traffic.groups.delete(1));
}

#[test]
fn a_ubpf_program_names_a_port_only_to_redirect() {
    let text = r"
#include <ubpf_model.p4>
header ethernet_t { bit<96> addresses; bit<16> type; }
struct headers { ethernet_t ethernet; }
struct meta_t { }
parser p(packet_in packet, out headers hdr, inout meta_t m, inout standard_metadata s) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control c(inout headers hdr, inout meta_t m, inout standard_metadata s) {
    apply {
        s.output_port = 7;
        if (hdr.ethernet.type == 0x806) { s.output_action = ubpf_action.REDIRECT; }
    }
}
control d(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }
ubpf(p(), c(), d()) main;
";
    let (program, traits) = load(&compiled(text));
    let mut switch = Switch::new(Memory::new(2), vec![1, 7], program, traits).unwrap();
    let ip = packet([10, 0, 0, 1], 6, 0);
    let arp = [&ip[..12], &[8, 6], &ip[14..]].concat();
    for port in 0..2 {
        switch.io().input[port].extend([ip.clone(), arp.clone()]);
    }
    switch.round().unwrap();
    assert_eq!(switch.io().output, [vec![ip.clone()], vec![ip, arp.clone(), arp]]);
}
