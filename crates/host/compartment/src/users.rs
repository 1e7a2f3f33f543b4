//! Users that no other process has.

/// The user if a range does not exist in this user namespace: that of processes without a user of their own.
pub const FALLBACK_UID: u32 = 65534;

/// Returns `first` if this many users from there exist in this user namespace, else [`FALLBACK_UID`].
#[must_use]
pub fn first_of(first: u32, count: u32) -> u32 {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let (first_of_range, end_of_range) = (u64::from(first), u64::from(first) + u64::from(count));
    let contains_range = |line: &str| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let end = first.saturating_add(count);
        (first_of_range >= first && end_of_range <= end).then_some(())
    };
    if map.lines().any(|l| contains_range(l).is_some()) { first } else { FALLBACK_UID }
}
