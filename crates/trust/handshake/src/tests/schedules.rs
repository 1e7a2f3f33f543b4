//! Random schedules of a hostile host.
//!
//! Each plays with parties of its own. Most use a small group in place of Curve25519, which makes them cheap;
//! hash, cipher and state machines are the product's. Every hundredth uses Curve25519.

use super::world::{Counts, World};
use crate::checks::Defect;
use crate::crypto::Curve;

/// Moves of a schedule.
const MOVES: usize = 90;

fn schedules() -> u64 {
    p4shield_need::extent(20_000, 1_000_000)
}

fn search(seeds: impl Iterator<Item = u64>, defect: Defect) -> Result<Counts, String> {
    let mut total = Counts::default();
    for seed in seeds {
        let curve = if seed % 100 == 99 { Curve::X25519 } else { Curve::Toy };
        let played = std::panic::catch_unwind(|| World::new(seed, curve, defect).play(MOVES));
        let played = played.unwrap_or_else(|_| Err("a panic".to_owned()));
        let counts = played.map_err(|what| format!("schedule {seed}: {what}"))?;
        total.agreed += counts.agreed;
        total.failed += counts.failed;
        total.hostile_agreed += counts.hostile_agreed;
        total.delivered += counts.delivered;
    }
    Ok(total)
}

#[test]
fn no_schedule_of_a_host_agrees_on_a_key_with_it() {
    let (count, players) = (schedules(), 2);
    let totals = std::thread::scope(|scope| {
        let of = |player| (0..count).filter(move |seed| seed / 100 % players == player);
        let searches: Vec<_> =
            (0..players).map(|player| scope.spawn(move || search(of(player), Defect::None))).collect();
        searches.into_iter().map(|s| s.join().expect("a search ends").unwrap()).collect::<Vec<_>>()
    });
    let sum = |of: fn(&Counts) -> u64| totals.iter().map(of).sum::<u64>();
    let (agreed, failed, hostile) = (sum(|c| c.agreed), sum(|c| c.failed), sum(|c| c.hostile_agreed));
    let delivered = sum(|c| c.delivered);
    println!("{count} schedules: {delivered} deliveries, {agreed} ends agreed, {failed} failed");
    println!("{hostile} sessions with the host, where neither party demands anything");
    // The search reaches what it is about.
    assert!(agreed > count / 4 && failed > count / 2 && hostile > count / 200);
}

/// How the search is shown to work: each defect, put back, is found.
#[test]
fn each_defect_put_back_is_found() {
    let most = schedules();
    for defect in Defect::ALL {
        let found = search(1 << 40..(1 << 40) + most, defect).expect_err(&format!("{defect:?} is not found"));
        println!("{defect:?}: {found}");
    }
}
