//! Comparison of the kernel's tap with the digest in Rust, frame by frame.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use common::packet::PacketSocket;
use common::usable;
use p4shield_abi::Direction;
use p4shield_agent::audit::Counts;
use p4shield_agent::audit::history::{Histories, History};
use p4shield_agent::tap::{Hook, Tap, TapConfig, TapError};
use p4shield_seal::PacketDigest;
use p4shield_testbed::{NetNs, wait_until};

const KEY: [u8; 16] = *b"0123456789abcdef";
const V4: [u8; 4] = [10, 7, 7, 7];
const V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
/// Number of frames of [`frames`].
const ALL_FRAMES: usize = 2 * 3 * 9;

fn config(addresses: &[IpAddr], cover: u32, hook: Hook) -> TapConfig<'_> {
    TapConfig { interface: "eth0", addresses, keys: [Some(&KEY), None], cover, hook }
}

/// Returns a frame to the VM: VLAN tags, IP version, protocol, bytes after the IP header.
fn frame(tags: usize, v6: bool, protocol: u8, options: usize, fragment: u16, payload: usize) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for i in 0..tags {
        f.extend_from_slice(if i == 0 && tags == 2 { &[0x88, 0xa8] } else { &[0x81, 0] });
        f.extend_from_slice(&[0, 5 + i as u8]);
    }
    if v6 {
        f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, payload as u8, protocol, 64]);
        f.extend_from_slice(&[0xfe; 16]);
        f.extend_from_slice(&V6);
    } else {
        f.extend_from_slice(&[8, 0, 0x45 + options as u8, 0]);
        f.extend_from_slice(&((20 + 4 * options + payload) as u16).to_be_bytes());
        f.extend_from_slice(&[1, 2]);
        f.extend_from_slice(&fragment.to_be_bytes());
        f.extend_from_slice(&[64, protocol, 0xaa, 0xbb, 10, 9, 9, 9]);
        f.extend_from_slice(&V4);
        f.extend(std::iter::repeat_n(1, 4 * options));
    }
    f.extend((0..payload).map(|i| (i * 7 + 1) as u8));
    f
}

/// Returns frames of every kind that the digest distinguishes, with `tags` VLAN tags.
fn frames(tags: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        for protocol in [6, 17, 1] {
            for payload in [0, 1, 7, 8, 17, 18, 60, 100, 200] {
                let options = if v6 { 0 } else { payload % 11 };
                let fragment = [0, 0x2000, 0x0005][payload % 3];
                all.push(frame(tags, v6, protocol, options, fragment, payload));
            }
        }
    }
    assert_eq!(all.len(), ALL_FRAMES);
    all
}

fn ends() -> (NetNs, NetNs) {
    let (vm, peer) = (NetNs::create("agent-tap").unwrap(), NetNs::create("agent-peer").unwrap());
    vm.veth("eth0", &peer, "eth0").unwrap();
    (vm, peer)
}

fn observe(tap: &Tap, direction: Direction) -> (Counts, History) {
    let mut histories = Histories::default();
    let counts = tap.observe(direction, &mut histories).unwrap();
    let [history, _] = histories;
    (counts, history)
}

#[test]
fn kernel_and_rust_compute_the_same_digests() {
    if !usable() {
        return;
    }
    let addresses = [IpAddr::from(V4), IpAddr::from(V6)];
    let digest = PacketDigest::new(&KEY);
    // The kernel removes tags from the data before tc; XDP processes them as they are on the wire.
    for (hook, most_tags) in [(Hook::Auto, 2), (Hook::Tc, 0)] {
        for cover in [128u32, 127, 64, 41, 22] {
            let (vm, peer) = ends();
            let tap = vm.inside(|| Tap::attach(&config(&addresses, cover, hook)).unwrap());
            let port = peer.inside(|| PacketSocket::open("eth0").unwrap());
            let sent: Vec<_> = (0..=most_tags).flat_map(frames).collect();
            for f in &sent {
                port.send(f).unwrap();
            }
            let all = sent.len() as u64;
            wait_until("all frames arrived", 10, || tap.counts(Direction::Ingress).unwrap().packets >= all)
                .unwrap();
            let (counts, history) = observe(&tap, Direction::Ingress);
            assert_eq!((counts.packets, counts.not_whole), (all, 0), "{hook:?}");
            let tags: usize = (0..=most_tags).map(|tags| 4 * tags * ALL_FRAMES).sum();
            let bytes: usize = sent.iter().map(Vec::len).sum();
            assert_eq!(counts.bytes, (bytes - tags) as u64);
            for (n, f) in (0..).zip(&sent) {
                let mine = digest.digest(&f[..f.len().min(cover as usize)], f.len() as u32);
                let kernels = history.after(n + 1).unwrap().wrapping_sub(history.after(n).unwrap());
                assert_eq!(kernels, mine, "{hook:?}, cover {cover}, frame {n}: {f:02x?}");
            }
        }
    }
}

#[test]
fn egress_is_digested_and_other_frames_are_not() {
    if !usable() {
        return;
    }
    let (vm, _peer) = ends();
    // The VM sends these frames, so its address is the source, 10.9.9.9.
    let addresses = [IpAddr::from([10, 9, 9, 9])];
    let tap = vm.inside(|| Tap::attach(&config(&addresses, 128, Hook::Auto)).unwrap());
    let port = vm.inside(|| PacketSocket::open("eth0").unwrap());
    let before = tap.counts(Direction::Egress).unwrap();
    assert_eq!(before.packets, 0, "neighbour discovery counts as others");
    let f = frame(0, false, 17, 0, 0, 30);
    port.send(&f).unwrap();
    port.send(&frame(0, true, 17, 0, 0, 30)).unwrap();
    port.send(&[0xff; 60]).unwrap();
    let (counts, history) = observe(&tap, Direction::Egress);
    assert_eq!(counts.packets, 1);
    assert!(counts.others >= before.others + 2);
    assert_eq!(history.after(1), Some(PacketDigest::new(&KEY).digest(&f, f.len() as u32)));
}

/// Returns edge cases of a mediator's classification of IP: tags, truncated headers, neighbour discovery and
/// similar packets.
fn edges() -> Vec<Vec<u8>> {
    let mut all = vec![vec![0xff; 60]];
    for tag in [0x8100_u16, 0x88a8, 0x9100, 0x9200] {
        let mut f = frame(1, false, 17, 0, 0, 40);
        f[12..14].copy_from_slice(&tag.to_be_bytes());
        all.push(f);
    }
    for len in [14, 33, 34, 40] {
        all.push(frame(0, false, 6, 0, 0, 20)[..len].to_vec());
    }
    for (next, hops, kind) in
        [(58, 255, 132), (58, 255, 133), (58, 255, 137), (58, 255, 138), (58, 64, 135), (6, 255, 135)]
    {
        let mut f = frame(0, true, next, 0, 0, 30);
        (f[21], f[54]) = (hops, kind);
        all.push(f.clone());
        all.push(f[..54].to_vec());
        all.push(f[..53].to_vec());
    }
    all
}

#[test]
fn without_addresses_the_tap_counts_mediated_packets() {
    use p4shield_mediator::classify;
    if !usable() {
        return;
    }
    let (vm, peer) = ends();
    let tap = vm.inside(|| Tap::attach(&config(&[], 128, Hook::Auto)).unwrap());
    let port = peer.inside(|| PacketSocket::open("eth0").unwrap());
    let total = |c: Counts| c.packets + c.others;
    for f in edges() {
        let before = tap.counts(Direction::Ingress).unwrap();
        port.send(&f).unwrap();
        // The kernels of both ends send neighbour discovery, which counts as others.
        wait_until("the frame arrived", 10, || {
            total(tap.counts(Direction::Ingress).unwrap()) > total(before)
        })
        .unwrap();
        let counted = tap.counts(Direction::Ingress).unwrap().packets - before.packets;
        let exempt = classify(&f, f.len()).is_exempt(Direction::Ingress);
        assert_eq!(counted == 1, !exempt, "{f:02x?}");
    }
}

/// The kernel stores a tag beside the frame; the digest leaves tags out.
#[test]
fn frames_with_offloaded_vlan_tags_have_their_digest() {
    if !usable() {
        return;
    }
    let (vm, peer) = ends();
    let addresses = [IpAddr::from(V4), IpAddr::from(V6)];
    let tap = vm.inside(|| Tap::attach(&config(&addresses, 128, Hook::Tc)).unwrap());
    let port = peer.inside(|| PacketSocket::open("eth0").unwrap());
    let digest = PacketDigest::new(&KEY);
    let sent: Vec<_> = (1..=2).flat_map(frames).collect();
    for f in &sent {
        port.send(f).unwrap();
    }
    let all = sent.len() as u64;
    wait_until("all frames arrived", 10, || tap.counts(Direction::Ingress).unwrap().packets >= all).unwrap();
    let (counts, history) = observe(&tap, Direction::Ingress);
    assert_eq!((counts.packets, counts.not_whole), (all, 0));
    for (n, f) in (0..).zip(&sent) {
        let mine = digest.digest(&f[..f.len().min(128)], f.len() as u32);
        let kernels = history.after(n + 1).unwrap().wrapping_sub(history.after(n).unwrap());
        assert_eq!(kernels, mine, "frame {n}: {f:02x?}");
    }
}

/// Returns both taps' counts as soon as neither changes for a while.
fn at_rest(counted: impl Fn() -> (u64, u64)) -> (u64, u64) {
    let mut last = counted();
    wait_until("a moment without packets", 10, || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::mem::replace(&mut last, counted()) == last
    })
    .unwrap();
    last
}

/// Both ends of a connection with segmentation in between: the tap digests what the network carries.
#[test]
fn super_packets_have_the_digests_of_their_segments() {
    if !usable() {
        return;
    }
    for v6 in [false, true] {
        let (vm, peer) = ends();
        let (mine, theirs) = if v6 { ("fd00:7::7", "fd00:7::1") } else { ("10.7.7.7", "10.7.7.1") };
        for (ns, address) in [(&vm, mine), (&peer, theirs)] {
            let (prefix, nodad) = if v6 { ("64", " nodad") } else { ("24", "") };
            ns.ip(&format!("addr add {address}/{prefix} dev eth0{nodad}")).unwrap();
        }
        // The VM's super-packets are segmented before its interface; the other end sees segments only.
        let words = ["-K", "eth0", "tso", "off", "tx-tcp6-segmentation", "off"];
        p4shield_testbed::process::run(vm.command("ethtool").args(words)).unwrap();
        let off = ["-K", "eth0", "gro", "off"];
        p4shield_testbed::process::run(peer.command("ethtool").args(off)).unwrap();
        // Both count what the VM's kernel sends by itself, too, from whichever address.
        let sent = vm.inside(|| Tap::attach(&config(&[], 128, Hook::Tc)).unwrap());
        let seen = peer.inside(|| Tap::attach(&config(&[], 128, Hook::Tc)).unwrap());
        let counted = || {
            let packets = |tap: &Tap, d| tap.counts(d).unwrap().packets;
            (packets(&sent, Direction::Egress), packets(&seen, Direction::Ingress))
        };
        // What the VM's kernel sent between the two attachments only one of them has counted.
        let before = at_rest(counted);
        let listener = peer.inside(|| TcpListener::bind((theirs, 0)).unwrap());
        let to = listener.local_addr().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap());
            let mut stream = vm.inside(|| TcpStream::connect(to).unwrap());
            // Fewer packets in flight than the peer's backlog holds, however late its core serves it.
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, 128 << 10).unwrap();
            let data: Vec<u8> = (0..4_u32 << 20).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
            stream.write_all(&data).unwrap();
        });
        let segments = |(a, b): (u64, u64)| (a - before.0, b - before.1);
        wait_until("all segments arrived", 10, || {
            let (a, b) = segments(at_rest(counted));
            a == b
        })
        .unwrap();
        let ((a, sums), (b, theirs)) =
            (observe(&sent, Direction::Egress), observe(&seen, Direction::Ingress));
        let (count, others) = segments((a.packets, b.packets));
        assert!(count >= (4 << 20) / 1448 && count == others, "{a:?} {b:?}");
        assert_eq!((a.not_whole, b.not_whole), (0, 0), "v6 {v6}");
        let digests = |sums: &History, from, to| Some(sums.after(to)?.wrapping_sub(sums.after(from)?));
        assert_eq!(
            digests(&sums, before.0, a.packets).expect("the tap keeps as many digests"),
            digests(&theirs, before.1, b.packets).expect("so does the other tap"),
            "v6 {v6}"
        );
    }
}

#[test]
fn a_dropped_tap_is_detached() {
    if !usable() {
        return;
    }
    let (vm, _peer) = ends();
    let addresses = [IpAddr::from(V4)];
    let show = || vm.ip("link show dev eth0").unwrap();
    let tap = vm.inside(|| Tap::attach(&config(&addresses, 128, Hook::Auto)).unwrap());
    assert!(show().contains("prog/xdp"), "{}", show());
    drop(tap);
    wait_until("the kernel detached the tap", 10, || !show().contains("prog/xdp")).unwrap();
    let none = TapConfig { interface: "nosuch0", ..config(&addresses, 128, Hook::Auto) };
    assert!(matches!(vm.inside(|| Tap::attach(&none)), Err(TapError::NoInterface { .. })));
}

#[test]
fn two_taps_share_an_interface() {
    if !usable() {
        return;
    }
    let (vm, _peer) = ends();
    let addresses = [IpAddr::from(V4)];
    let first = vm.inside(|| Tap::attach(&config(&addresses, 128, Hook::Auto)).unwrap());
    let second = vm.inside(|| Tap::attach(&config(&addresses, 128, Hook::Auto)).unwrap());
    assert!(first.place().contains("ingress at xdp"), "{}", first.place());
    assert!(second.place().contains("ingress at tc"), "XDP is taken: {}", second.place());
}
