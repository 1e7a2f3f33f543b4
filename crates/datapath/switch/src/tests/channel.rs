//! Calls over a channel in shared memory, whose other end answers, lies, or writes where it likes.

use super::Memory;
use super::calls::{DEADLINE, ONCE, arrive, keyed, left, packet, switch};
use crate::{CallChannel, CallFail, CallSettings, DropReason, Switch};
use p4shield_abi::call::{MEMORY, NUMBERS, RESULT};
use p4shield_abi::channel::{BATCH, VERDICT_HEAD};
use p4shield_channel::{Doorbell, Memory as _, Requester, Responder, Response, SharedMemory, create_channel};
use p4shield_need::extent;
use p4shield_testbed::campaign::Random;
use std::sync::atomic::Ordering;

/// The compartment's end.
struct Far {
    responder: Responder,
    memory: SharedMemory,
    /// Closed, it would wake none.
    _doorbell: Doorbell,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Honest,
    Drops,
    ChangesNothing,
    TooShort,
    OtherFunction,
}

const LIES: [Answer; 4] = [Answer::Drops, Answer::ChangesNothing, Answer::TooShort, Answer::OtherFunction];

impl Far {
    /// Gives a switch a compartment, and returns that one's end.
    fn of(switch: &mut Switch<Memory>) -> Self {
        let geometry = CallChannel::geometry(MEMORY);
        let memory = create_channel("test", geometry).unwrap();
        let (ours, theirs) = Doorbell::pair().unwrap();
        let responder = Responder::new(memory.map_again().unwrap(), geometry).unwrap();
        let far = Self { responder, memory: memory.map_again().unwrap(), _doorbell: theirs };
        let port = Box::new(CallChannel::new(Requester::new(memory, geometry).unwrap(), ours));
        let settings = CallSettings { port, deadline: DEADLINE, fail: CallFail::Drop };
        switch.set_calls(Some(Box::new(settings)));
        far
    }

    /// Answers a batch of messages as `how` says, and returns their number.
    fn answer(&mut self, mut how: impl FnMut() -> Answer) -> usize {
        let mut messages = Vec::new();
        let fetched = self.responder.fetch_with(BATCH, |_, header| {
            let mut message = vec![0; header.len()];
            header.copy_to(&mut message);
            messages.push(message);
        });
        for message in &mut messages {
            let how = how();
            match how {
                Answer::TooShort => message.truncate(RESULT),
                Answer::OtherFunction => message[0] ^= 1,
                _ if message.len() < MEMORY => {}
                _ => message[RESULT] = keyed(message[NUMBERS]),
            }
            let response = match how {
                Answer::Drops => Response::Drop,
                Answer::ChangesNothing => Response::Pass,
                _ => Response::Rewritten { header: message, packet_len: message.len() as u32 },
            };
            // What the other end wrote into its own requests may not fit.
            if self.responder.respond(response).is_err() {
                self.responder.respond(Response::Pass).unwrap();
            }
        }
        let _ = self.responder.publish();
        fetched.unwrap_or_default()
    }
}

#[test]
fn a_batch_crosses_the_channel_at_once_and_comes_back() {
    let (mut switch, _) = switch(CallFail::Drop);
    let mut far = Far::of(&mut switch);
    arrive(&mut switch, (0..30).map(|n| packet(n, 1, n)));
    assert_eq!(left(&mut switch), []);
    assert_eq!(far.answer(|| Answer::Honest), 30);
    assert_eq!(left(&mut switch), (0..30).map(|n| (ONCE, n)).collect::<Vec<_>>());
    assert!(!switch.awaits_answers());
}

#[test]
fn a_lie_over_the_channel_costs_its_own_packet() {
    let (mut switch, _) = switch(CallFail::Drop);
    let mut far = Far::of(&mut switch);
    arrive(&mut switch, (0..9).map(|n| packet(n, 1, n)));
    let mut lies = LIES.into_iter();
    let mut is_honest = false;
    far.answer(|| {
        is_honest = !is_honest;
        if is_honest { Answer::Honest } else { lies.next().unwrap_or(Answer::Drops) }
    });
    assert_eq!(left(&mut switch), [0, 2, 4, 6, 8].map(|n| (ONCE, n)));
    assert_eq!(switch.counts().dropped(DropReason::Unanswered), 4);
}

#[test]
fn a_broken_channel_costs_the_packets_that_call() {
    let (mut switch, _) = switch(CallFail::Drop);
    let far = Far::of(&mut switch);
    arrive(&mut switch, [packet(1, 1, 1), packet(2, 0, 2)]);
    // More answers than there are messages.
    far.memory.store_u32(VERDICT_HEAD, 700, Ordering::Release);
    assert_eq!(left(&mut switch), [(7, 2)]);
    arrive(&mut switch, [packet(1, 1, 3), packet(1, 0, 4)]);
    assert_eq!(left(&mut switch), [(7, 2), (7, 4)]);
    assert_eq!(switch.counts().dropped(DropReason::Unanswered), 2);
    let mut next = Far::of(&mut switch);
    arrive(&mut switch, [packet(1, 1, 5)]);
    next.answer(|| Answer::Honest);
    assert_eq!(left(&mut switch).last(), Some(&(ONCE, 5)));
}

/// Writes a few bytes anywhere into the memory, or a number near the one that is there.
fn scribble(memory: &SharedMemory, random: &mut Random) {
    if random.below(3) == 0 {
        let near = memory.load_u32(VERDICT_HEAD, Ordering::Relaxed).wrapping_add(random.below(40) as u32);
        memory.store_u32(VERDICT_HEAD, near, Ordering::Release);
        return;
    }
    for _ in 0..random.below(40) {
        let at = random.below(memory.len() - 8) & !7;
        memory.copy_in(at, &random.number().to_le_bytes());
    }
}

/// Plays a life with a compartment that writes where it likes, dies, and is late. Returns packets that made
/// a call and left, and those that were dropped for want of an answer.
fn play(random: &mut Random) -> (usize, u64) {
    let (mut switch, _) = switch(CallFail::Drop);
    let mut far = Far::of(&mut switch);
    let (mut number, mut bystanders) = (0, 0);
    for _ in 0..random.below(120) {
        match random.below(12) {
            0..=3 => {
                for _ in 0..random.below(5) {
                    // Flow 9 makes no call.
                    let (flow, calls) = [(0, 1), (1, 2), (2, 0), (2, 1), (9, 0)][random.below(5)];
                    bystanders += usize::from(flow == 9);
                    number += 1;
                    switch.io().input[0].push_back(packet(flow, calls, number));
                    if number == u8::MAX {
                        break;
                    }
                }
            }
            4..=6 => {
                far.answer(|| Answer::Honest);
            }
            7..=8 => {
                let mut how = || if random.below(2) == 0 { LIES[random.below(4)] } else { Answer::Honest };
                far.answer(&mut how);
            }
            9 => scribble(&far.memory, random),
            10 => switch.pass(DEADLINE),
            _ => far = Far::of(&mut switch),
        }
        switch.round().unwrap();
        assert!(switch.counts().balance(), "{:?}", switch.counts());
        if number == u8::MAX {
            break;
        }
    }
    for _ in 0..2 {
        switch.pass(2 * DEADLINE);
        left(&mut switch);
    }
    assert_eq!((switch.counts().waiting, switch.awaits_answers()), (0, false));
    let output = &switch.io().output[1];
    assert!(output.iter().all(|p| p.len() == 60 && p[15..] == [0xab; 45]), "nothing else changes");
    assert_eq!(output.iter().filter(|p| p[5] == 9).count(), bystanders, "others lose nothing");
    for flow in 0..10 {
        let numbers: Vec<u8> = output.iter().filter(|p| p[5] == flow).map(|p| p[14]).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    let called = output.iter().filter(|p| p[12] > 0).count();
    (called, switch.counts().dropped(DropReason::Unanswered))
}

#[test]
fn garbage_in_the_channel_leaves_no_packet_uncounted() {
    let mut random = Random::new(34);
    let lives = (0..extent(60, 5_000)).map(|_| play(&mut random));
    let (called, unanswered) = lives.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    assert!(called > 100 && unanswered > 100, "{called} left, {unanswered} had no answer");
}
