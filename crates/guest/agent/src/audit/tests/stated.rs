//! Attacks that keep packets out of every number: whatever was treated otherwise is a finding, or among the
//! packets that the audit states as not compared, not audited or late.

use std::collections::VecDeque;

use p4shield_abi::Direction;

use super::super::expect::{Expectations, ExpectedProgram};
use super::super::finding::{Digest, exit_code_of};
use super::super::{Audit, DirectionStatus, Limits, Method};
use super::game::{EQUAL, Game, Hole, PROGRAM, now};

/// The exit code, what was done, and what is stated.
#[derive(Debug)]
struct End {
    code: u8,
    done: u64,
    stated: u64,
    status: DirectionStatus,
}

impl End {
    fn of(game: &mut Game) -> Self {
        let (findings, status) = game.end();
        let stated = status.uncompared + status.unaudited + status.late;
        Self { code: exit_code_of(&findings), done: game.treason + game.late, stated, status }
    }

    #[track_caller]
    fn is_stated(&self) {
        assert!(self.code != 0 || self.done <= self.stated, "{self:?}");
        let DirectionStatus { interface, verified, uncompared, unaudited, .. } = self.status;
        // Those behind the last record are in none.
        let rest = interface.packets.saturating_sub(verified + uncompared + unaudited);
        assert!(self.code != 0 || rest <= 20, "{rest} packets are in no number: {self:?}");
    }
}

/// Honest packets at this rate.
fn steady(game: &mut Game, ms: u64, per_ms: u64) {
    for _ in 0..ms {
        (0..per_ms).for_each(|_| game.honest());
        game.wait(1);
    }
}

/// An audit with the default limits that begins now.
fn with_default_limits(seed: u64) -> Game {
    let mut game = Game::fresh(seed, Hole::None, Direction::Ingress);
    let known = ExpectedProgram::OneOf(vec![Digest(PROGRAM)]);
    let expected = Expectations { programs: [known.clone(), known], ..Expectations::default() };
    let limits = Limits::new(100_000_000, 200_000_000);
    game.audit = Audit::new(limits, expected, &[Direction::Ingress], Method::Digests, now(0));
    game
}

/// More records wait than the audit keeps, so that it compares none; later, the first ones have no place.
#[test]
fn packets_of_a_log_that_is_too_fast_are_stated() {
    let mut game = with_default_limits(11);
    for ms in 0..8_000 {
        if ms < 1_500 {
            game.honest()
        } else {
            game.bypass()
        }
        game.wait(1);
        if ms % 3 == 0 {
            game.publish();
        }
    }
    steady(&mut game, 12_000, 20);
    game.wait(3_000);
    End::of(&mut game).is_stated();
}

#[test]
fn packets_of_a_log_that_is_silent_at_first_are_stated() {
    let mut game = Game::fresh(1, Hole::None, Direction::Ingress);
    game.hold_until = 980;
    steady(&mut game, 440, 4);
    for _ in 0..350 {
        (0..40).for_each(|_| game.bypass());
        game.wait(1);
    }
    steady(&mut game, 189, 4);
    game.held.clear();
    // Losses, so that the first two records have no place.
    for _ in 0..25 {
        for _ in 0..10 {
            let lost = game.packet();
            game.judge(lost);
        }
        game.honest();
        game.wait(1);
    }
    steady(&mut game, 4_000, 10);
    End::of(&mut game).is_stated();
}

/// The comparison has begun, and is lost again, before the start of the audit has ended.
#[test]
fn packets_swapped_while_the_audit_begins_are_stated() {
    for (seed, at) in [(1, 180), (2, 182), (3, 184), (4, 200)] {
        let mut game = Game::fresh(seed, Hole::None, Direction::Ingress);
        steady(&mut game, at, 1);
        for _ in 0..15 {
            (0..20).for_each(|_| game.modify());
            game.wait(1);
        }
        steady(&mut game, 3_000, 4);
        End::of(&mut game).is_stated();
    }
}

/// Epoch, counter and bytes of a record.
type Sealed = (u64, u64, Vec<u8>);

/// A millisecond in which records arrive `lag` milliseconds late; `due` has those on their way.
fn wait_lagging(game: &mut Game, due: &mut VecDeque<(u64, Sealed)>, lag: u64) {
    game.hold_until = u64::MAX;
    game.wait(1);
    let at = game.now + lag;
    due.extend(std::mem::take(&mut game.held).into_iter().map(|record| (at, record)));
    while let Some((_, (epoch, counter, bytes))) = due.pop_front_if(|(at, _)| *at <= game.now) {
        game.open(epoch, counter, &bytes);
    }
}

/// One of them is always on its way, while records are late. It stands for one that is missing, not for all.
#[test]
fn equal_packets_that_are_kept_back_are_lost() {
    for (lag, every) in [(0, 3), (60, 3), (100, 6)] {
        let mut game = Game::new(3, Hole::None);
        let (mut due, mut kept) = (VecDeque::new(), 0);
        for ms in 0..6_000 {
            (0..4).for_each(|_| game.honest());
            if ms % every == 0 {
                game.judge(EQUAL);
                if ms % (2 * every) == 0 { game.arrive(Some(EQUAL)) } else { kept += 1 }
            }
            wait_lagging(&mut game, &mut due, lag);
        }
        // From now on, the program drops them.
        for ms in 0..2 * every * kept {
            (0..4).for_each(|_| game.honest());
            if ms % (2 * every) == 0 {
                game.arrive(Some(EQUAL));
                game.late += 1;
            }
            wait_lagging(&mut game, &mut due, lag);
        }
        game.hold_until = 0;
        End::of(&mut game).is_stated();
    }
}

/// The VM sends little, and the place of the first record is new.
#[test]
fn packets_invented_at_a_new_place_are_stated() {
    for seed in 1..4 {
        let mut game = Game::fresh(seed, Hole::None, Direction::Egress);
        for ms in 0..3_000 {
            if ms % 50 == 5 {
                game.honest();
            }
            if ms == 270 {
                for _ in 0..60 {
                    let invented = game.packet();
                    game.judge(invented);
                    game.treason += 1;
                }
            }
            game.wait(1);
        }
        End::of(&mut game).is_stated();
    }
}
