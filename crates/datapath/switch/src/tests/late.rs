//! Answers of a compartment that come after their deadline.

use super::calls::{DEADLINE, Manner, arrive, keyed, left, packet, switch};
use crate::calls::CallFail;
use crate::counts::DropReason;

#[test]
fn a_late_answer_is_that_of_no_other_packet() {
    // Without one behind it, the late packet's place is the next one's.
    for behind in [vec![packet(1, 0, 2)], Vec::new()] {
        let (mut switch, compartment) = switch(CallFail::Drop);
        arrive(&mut switch, std::iter::once(packet(1, 1, 1)).chain(behind.clone()));
        switch.pass(DEADLINE);
        assert_eq!(left(&mut switch), vec![(7, 2); behind.len()]);
        assert_eq!(switch.counts().dropped(DropReason::Unanswered), 1);
        let mut other = packet(1, 1, 3);
        other[13] = 100;
        arrive(&mut switch, [other]);
        compartment.answer(1, Manner::Honest);
        assert_eq!(left(&mut switch).len(), behind.len(), "that was the late one's");
        compartment.answer(1, Manner::Honest);
        assert_eq!(left(&mut switch).last(), Some(&(keyed(100), 3)));
    }
}

/// A compartment that got no core for a while answers then, and its answers make room for further messages.
#[test]
fn late_answers_make_room_though_no_packet_waits() {
    let (mut switch, compartment) = switch(CallFail::Drop);
    compartment.limit(2);
    arrive(&mut switch, [packet(1, 1, 1), packet(2, 1, 2)]);
    switch.pass(DEADLINE);
    assert_eq!(left(&mut switch), []);
    arrive(&mut switch, [packet(3, 1, 3)]);
    assert_eq!(switch.counts().dropped(DropReason::CallsFull), 1);
    assert!(!switch.awaits_answers());
    compartment.answer(2, Manner::Honest);
    arrive(&mut switch, [packet(4, 1, 4)]);
    compartment.answer(1, Manner::Honest);
    assert_eq!(left(&mut switch).last().map(|(_, number)| *number), Some(4));
}
