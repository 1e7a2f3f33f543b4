//! Lookups among 10,000 rules of a classifier, compared with an exact table of the same size: nanoseconds per
//! lookup with random keys, and with keys that match as many leading bytes of as many rules as possible.
#![allow(clippy::print_stdout, reason = "it prints a report")]

use std::hint::black_box;
use std::time::Instant;

use p4shield_abi::map::{MapDefinition, TYPE_CLASSIFIER, TYPE_HASH, rule_size};
use p4shield_bpf::linked::Map as Declared;
use p4shield_bpf::maps::{Maps, UpdateFlag};

const RULES: usize = 10_000;
/// A five-tuple: two addresses, two ports (the last two fields are ranges) and a protocol.
const KEY: usize = 13;
const ROUNDS: usize = 200_000;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn key(&mut self) -> [u8; KEY] {
        std::array::from_fn(|_| self.next() as u8)
    }
}

/// Returns the nanoseconds per lookup.
fn measure(maps: &Maps, name: &str, keys: &[[u8; KEY]]) -> f64 {
    let map = maps.get(name).expect("the map");
    let start = Instant::now();
    for i in 0..ROUNDS {
        black_box(map.lookup(black_box(&keys[i % keys.len()])).is_ok());
    }
    start.elapsed().as_nanos() as f64 / ROUNDS as f64
}

fn main() {
    let definition = |map_type, flags| MapDefinition {
        map_type,
        key_size: KEY as u32,
        value_size: 8,
        max_entries: RULES as u32,
        flags,
    };
    let declared =
        [("exact", TYPE_HASH, 0), ("ternary", TYPE_CLASSIFIER, 0), ("ranges", TYPE_CLASSIFIER, 0x22)]
            .map(|(name, t, flags)| Declared { name: name.to_owned(), definition: definition(t, flags) });
    let mut maps = Maps::with_definitions(&declared, 1 << 30).expect("the maps");
    let mut rng = Rng(0x1234_5678_9abc_def1);
    let rules: Vec<([u8; KEY], [u8; KEY])> = (0..RULES)
        .map(|_| {
            let (a, mut b) = (rng.key(), [0xff; KEY]);
            // Prefixes of many lengths and wildcards, which gives as many tuples as possible.
            let open = rng.next();
            (0..KEY)
                .filter(|i| open >> i & 3 == 0)
                .for_each(|i| b[i] = (0xff00u16 >> (open >> (20 + i) & 7)) as u8);
            (a, b)
        })
        .collect();
    let start = Instant::now();
    for (i, (a, b)) in rules.iter().enumerate() {
        maps.get_mut("exact").expect("exact").update(a, &[0; 8], UpdateFlag::Any).expect("room");
        let priority = ((RULES - i) as u32).to_le_bytes();
        for name in ["ternary", "ranges"] {
            let mut rule = [&priority[..], a, b].concat();
            if name == "ranges" {
                rule[4 + KEY + 9..].fill(0xff);
            }
            assert_eq!(rule.len(), rule_size(KEY as u32) as usize);
            maps.get_mut(name).expect("a classifier").update(&rule, &[0; 8], UpdateFlag::Any).expect("room");
        }
    }
    println!("{} insertions into each map took {:?}", RULES, start.elapsed());
    let random: Vec<[u8; KEY]> = (0..4096).map(|_| rng.key()).collect();
    // All but the last byte of a rule: every other byte matches some rules, but no rule matches.
    let hostile: Vec<[u8; KEY]> = rules
        .iter()
        .take(4096)
        .map(|(a, _)| {
            let mut key = *a;
            key[KEY - 1] ^= 0x80;
            key
        })
        .collect();
    for (kind, keys) in [("random", &random), ("hostile", &hostile)] {
        let [exact, ternary, ranges] = ["exact", "ternary", "ranges"].map(|n| measure(&maps, n, keys));
        println!(
            "{kind} keys: exact {exact:.0} ns, ternary {ternary:.0} ns ({:.1} x), ranges {ranges:.0} ns \
             ({:.1} x)",
            ternary / exact,
            ranges / exact
        );
    }
}
