//! A short deterministic campaign through every fuzz entry. `P4SHIELD_FUZZ_BYTES` sets how many bytes (default 1 MB).

use p4shield_agent::fuzz;

/// Pseudo-random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.next() % most;
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn campaign(most: u64, mut run: impl FnMut(&mut Random, Vec<u8>)) {
    let budget = std::env::var("P4SHIELD_FUZZ_BYTES").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000_000);
    let (mut random, mut spent) = (Random(2026), 0);
    while spent < budget {
        let bytes = random.bytes(most);
        spent += bytes.len() as u64 + 1;
        run(&mut random, bytes);
    }
}

#[test]
fn info_pages() {
    campaign(2_000, |_, b| fuzz::info_page(&b));
}

#[test]
fn log_pages() {
    campaign(2_000, |_, b| fuzz::log_page(&b));
}

/// Valid text with random bytes written into it goes deeper than random bytes.
fn damaged(random: &mut Random, sample: &str, noise: &[u8]) -> Vec<u8> {
    let mut text = sample.as_bytes().to_vec();
    for b in noise.iter().take(6) {
        let at = random.next() as usize % text.len();
        // Mostly digits, signs and separators, which are what these formats turn on.
        let likely = b"0123456789-+. :\n\"{},=";
        text[at] = if b % 4 == 0 { *b } else { likely[*b as usize % likely.len()] };
    }
    text
}

#[test]
fn control_lines() {
    let sample = r#"{"do":"set","key":"load","value":18446744073709551615,"for_ms":1000}"#;
    campaign(200, |random, b| {
        fuzz::control_line(&b);
        fuzz::control_line(&damaged(random, sample, &b));
    });
}

#[test]
fn proc_files() {
    let sample = "TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 324\nTCP6: inuse 7\nMemTotal: 9 kB\nMemAvailable: 8 kB\n\
        some avg10=12.34 avg60=0.28\nfull avg10=0.05\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
    campaign(400, |random, b| {
        fuzz::proc_files(&b);
        fuzz::proc_files(&damaged(random, sample, &b));
    });
}
