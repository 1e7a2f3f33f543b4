//! Clones, resubmission, recirculation, and groups of programs that keep state.

use super::{Memory, compiled, load};
use crate::{DropReason, Switch};
use p4shield_traffic::{Copy, Session};

/// A program that does to a packet what its first byte says.
const REQUESTS: &str = r"
#include <v1model.p4>
header h_t { bit<8> what; bit<8> rounds; bit<8> trace; }
struct headers { h_t h; }
struct meta_t { @field_list(1) bit<8> rounds; bit<8> lost; }
parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply { } }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t std) {
    register<bit<32>>(1) runs;
    apply {
        bit<32> n;
        runs.read(n, 0);
        runs.write(0, n + 1);
        std.egress_spec = 2;
        hdr.h.trace = 9;
        m.lost = 1;
        if (hdr.h.what == 1) { clone_preserving_field_list(CloneType.I2E, 5, 1); m.rounds = 7; }
        if (hdr.h.what == 2 && m.rounds < 3) { m.rounds = m.rounds + 1; resubmit_preserving_field_list(1); }
        if (hdr.h.what == 3) { resubmit_preserving_field_list(0); }
        if (hdr.h.what == 5) { clone(CloneType.I2E, 77); mark_to_drop(std); }
        if (hdr.h.what == 7) { std.mcast_grp = 4; }
        if (hdr.h.what == 8) { clone3(CloneType.I2E, 5, { m.rounds }); m.rounds = 9; }
    }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t std) {
    apply {
        if (hdr.h.what == 4 && hdr.h.rounds < 3) { recirculate_preserving_field_list(1); }
        if (hdr.h.what == 6 && std.instance_type != 2) { clone_preserving_field_list(CloneType.E2E, 5, 1); }
        hdr.h.rounds = m.rounds + hdr.h.rounds + 1;
        hdr.h.trace = hdr.h.trace + (bit<8>) std.instance_type * 16 + m.lost;
    }
}
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// Sends a packet whose first byte is `what` to port 1 of a switch with ports 1, 2 and 3; returns it with
/// what left by ports 2 and 3: the first three bytes.
fn requested(what: u8) -> (Switch<Memory>, [Vec<[u8; 3]>; 2]) {
    let (program, traits) = load(&compiled(REQUESTS));
    let mut switch = Switch::new(Memory::new(3), vec![1, 2, 3], program, traits).unwrap();
    switch.pipeline().traffic.sessions.set(5, Session { port: Some(3), group: None }).unwrap();
    switch
        .pipeline()
        .traffic
        .groups
        .set(4, vec![Copy { port: 2, replica: 1 }, Copy { port: 3, replica: 2 }])
        .unwrap();
    switch.io().input[0].push_back([&[what, 0, 0][..], &[0xab; 40]].concat());
    switch.round().unwrap();
    assert!(switch.counts().balance(), "{:?}", switch.counts());
    let left = [1, 2].map(|port| {
        let packets: &Vec<Vec<u8>> = &switch.io().output[port];
        assert!(packets.iter().all(|p| p[3..] == [0xab; 40]), "the payload stays");
        packets.iter().map(|p| [p[0], p[1], p[2]]).collect()
    });
    (switch, left)
}

#[test]
fn clones_leave_as_they_arrived_and_keep_listed_fields() {
    let (switch, left) = requested(1);
    assert_eq!(left, [vec![[1, 8, 10]], vec![[1, 8, 16]]], "the clone without what ingress changed");
    assert_eq!(switch.counts().copies, 1);
    let (_, left) = requested(8);
    assert_eq!(left, [vec![[8, 10, 10]], vec![[8, 10, 16]]], "the clone with the field that the call names");
    let (switch, left) = requested(6);
    assert_eq!(left, [vec![[6, 1, 10]], vec![[6, 2, 10 + 32]]], "the clone with what egress changed");
    assert_eq!(switch.counts().copies, 1);
}

#[test]
fn packets_start_again_until_the_program_is_content() {
    let (switch, left) = requested(2);
    assert_eq!((left, switch.counts().resubmitted), ([vec![[2, 4, 10]], vec![]], 3));
    let (switch, left) = requested(4);
    assert_eq!((left, switch.counts().recirculated), ([vec![[4, 4, 10]], vec![]], 3));
}

#[test]
fn a_packet_that_never_ends_is_dropped() {
    let (mut switch, left) = requested(3);
    assert_eq!((left, switch.counts().dropped(DropReason::Runs)), ([vec![], vec![]], 1));
    // The next packet is as welcome as any.
    switch.io().input[0].push_back([&[0, 0, 0][..], &[0xab; 40]].concat());
    switch.round().unwrap();
    assert_eq!(switch.io().output[1].len(), 1);
}

#[test]
fn a_clone_without_a_session_is_dropped_for_that() {
    let (switch, left) = requested(5);
    assert!(left.iter().all(Vec::is_empty), "{left:?}");
    let counts = switch.counts();
    assert_eq!((counts.dropped(DropReason::NoSession), counts.dropped(DropReason::Program)), (1, 1));
}

#[test]
fn ingress_runs_once_for_all_copies_of_a_group() {
    let (switch, left) = requested(7);
    assert_eq!(left, [vec![[7, 1, 90]], vec![[7, 1, 90]]]);
    let mut pipeline = switch.pipeline();
    let runs = pipeline.program().maps().unwrap().iter().find(|m| m.name().ends_with("runs")).unwrap();
    assert_eq!(runs.lookup(&[0; 4]).unwrap(), 1_u32.to_ne_bytes());
}
