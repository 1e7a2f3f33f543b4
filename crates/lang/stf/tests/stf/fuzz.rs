//! Scripts and captures with random changes are parsed or refused. Every run is the same.

use p4shield_stf::pcap::{CapturedPacket, write};

/// A deterministic generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
    let mut seeds: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .expect("the programs")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "stf"))
        .map(|p| std::fs::read(p).expect("a script"))
        .collect();
    seeds.sort();
    let packet = |n: usize| CapturedPacket { timestamp_ns: n as u64, bytes: vec![8; n], length: n as u32 };
    seeds.push(write(&[packet(60), packet(0), packet(1500)]));
    seeds
}

fn mutated(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=rng.below(8) {
        let at = rng.below(data.len());
        match rng.below(5) {
            0 if !data.is_empty() => data[at] = rng.below(256) as u8,
            1 if !data.is_empty() => {
                data.remove(at);
            }
            2 => data.truncate(at),
            3 => {
                let end = data.len().min(at + rng.below(40));
                let piece = data[at..end].to_vec();
                let to = rng.below(data.len() + 1);
                data.splice(to..to, piece);
            }
            _ => data.insert(at.min(data.len()), b"*$#:/()[]=,\"\n0x"[rng.below(15)]),
        }
    }
    data
}

#[test]
fn mutated_scripts_and_captures_are_read_or_refused() {
    let rounds = p4shield_need::extent(4_000, 100_000);
    let mut rng = Rng(0x5eed_5eed_5eed_5eed);
    let seeds = seeds();
    for _ in 0..rounds {
        let seed = &seeds[rng.below(seeds.len())];
        p4shield_stf::fuzz(&mutated(&mut rng, seed));
    }
}
