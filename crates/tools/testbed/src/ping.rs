//! The output of ping.

use std::collections::BTreeSet;

/// Returns the numbers of the pings that were answered; the first one has number 1. `output` has a line for
/// each of them, so ping ran without `-q`.
pub fn answered(output: &str) -> BTreeSet<usize> {
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
    // A report that a host is unreachable has a number, too.
    output.lines().filter(|line| line.contains(" bytes from ")).filter_map(number).collect()
}

/// Returns how many pings before the last answered one had no answer.
///
/// Later ones may be under way still: ping ends at once when it is interrupted, and two round-trip times
/// after the last ping of `-c` if there was an answer before, whatever `-W` says (ping(8)). It counts them as
/// lost.
pub fn lost(output: &str) -> usize {
    let answered = answered(output);
    answered.last().map_or(0, |last| last - answered.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pings_before_the_last_answer_are_lost() {
        let answer = |n| format!("64 bytes from 10.0.0.1: icmp_seq={n} ttl=64 time=0.05 ms\n");
        let unreachable = "From 10.0.0.2 icmp_seq=2 Destination Host Unreachable\n";
        let output = [&answer(1), unreachable, &answer(4), &answer(3), "6 packets transmitted\n"].concat();
        assert_eq!((answered(&output), lost(&output)), (BTreeSet::from([1, 3, 4]), 1));
        assert_eq!((answered(unreachable).len(), lost(unreachable)), (0, 0));
    }
}
