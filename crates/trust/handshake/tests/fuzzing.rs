//! Random scripts of hosts, peers and streams: a seeded campaign.

use p4shield_handshake::{fuzz, stream};

/// SplitMix64: a different script each time, the same scripts each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

fn campaign(seed: u64, target: fn(&[u8])) {
    let budget = p4shield_need::extent(1 << 17, 1 << 21);
    let mut random = Random(seed);
    let mut spent = 0;
    while spent < budget {
        let len = (random.next() % 512) as usize + 1;
        let script: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
        target(&script[..len]);
        spent += len;
    }
}

#[test]
fn any_host_is_survived() {
    campaign(1, fuzz::host);
}

#[test]
fn any_peer_with_keys_is_survived() {
    campaign(2, fuzz::peer);
}

#[test]
fn any_stream_is_cut_or_refused() {
    campaign(3, fuzz::stream);
    // Random lengths are mostly out of range: short messages, too.
    campaign(4, |script| {
        let mut bytes = vec![script[0]];
        for message in script.chunks(7) {
            bytes.extend(stream::frame(message).expect("it is short"));
        }
        fuzz::stream(&bytes);
    });
}
