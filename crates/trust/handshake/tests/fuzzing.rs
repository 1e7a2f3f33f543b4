//! Random scripts of hosts, peers and streams: a seeded campaign.

use p4shield_handshake::{fuzz, stream};

fn campaign(seed: u64, target: fn(&[u8])) {
    p4shield_need::campaign(seed, 512, p4shield_need::extent(1 << 17, 1 << 21), target);
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
