//! The comparison across rotations of the VM's key.

use super::super::finding::Finding;
use super::game::{Game, Hole, Move};

fn play(moves: &[Move], seed: u64) -> Vec<Finding> {
    let mut game = Game::new(seed, Hole::None);
    moves.iter().for_each(|m| game.make(*m));
    game.end().0
}

/// Rotations among reordered and lost packets, each after the end of the previous one.
#[test]
fn a_rotation_is_compared_packet_by_packet() {
    let pause = [Move::Forward; 25];
    let moves = [&[Move::Jitter, Move::Rotate, Move::Jitter, Move::Lose][..], &pause].concat().repeat(3);
    for seed in 1..40 {
        let mut game = Game::new(seed, Hole::None);
        moves.iter().for_each(|m| game.make(*m));
        assert_eq!(game.rotations(), 3);
        let (findings, status) = game.end();
        assert_eq!((findings, status.uncompared), (vec![], 0), "seed {seed}: no packet is left out");
    }
}

#[test]
fn a_swap_at_a_rotation_is_found() {
    for (attack, seed) in
        [Move::RotateAndModify, Move::RotateAndJudgeTwice].into_iter().flat_map(|m| [(m, 1), (m, 2), (m, 3)])
    {
        let findings = play(&[Move::Forward, attack, Move::Forward, Move::Forward], seed);
        let found = findings.iter().any(|f| {
            matches!(f, Finding::Swapped { .. } | Finding::Bypassed { .. } | Finding::Withheld { .. })
        });
        assert!(found, "{attack:?} {seed}: {findings:?}");
    }
}

#[test]
fn records_cut_at_a_rotation_hide_no_bypass() {
    for seed in 1..10 {
        let findings = play(&[Move::Forward, Move::RotateAndCut, Move::Forward, Move::Forward], seed);
        let found = findings.iter().any(|f| matches!(f, Finding::Bypassed { .. }));
        assert!(found, "seed {seed}: {findings:?}");
    }
}
