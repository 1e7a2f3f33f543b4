//! The packet digest: what it covers, what it omits, and its key.

use p4shield_abi::log_page::{DIGEST_BYTES, DIGEST_HEADER_BYTES};
use p4shield_seal::{DigestBatch, Identity, LANES, PacketDigest, TenantKey};
use proptest::prelude::*;

const ACME_WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };

fn digest() -> PacketDigest {
    PacketDigest::new(b"0123456789abcdef")
}

fn of(frame: &[u8]) -> u64 {
    digest().digest(frame, frame.len() as u32)
}

/// Ethernet, `tags` VLAN tags, IP, and 60 bytes after the IP header.
fn frame(tags: usize, v6: bool, protocol: u8, options: u8, fragment: u16) -> (Vec<u8>, usize) {
    let mut f = vec![1; 12];
    for _ in 0..tags {
        f.extend_from_slice(&[0x81, 0, 0, 9]);
    }
    if v6 {
        f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, protocol, 64]);
        f.extend_from_slice(&[3; 32]);
    } else {
        f.extend_from_slice(&[8, 0, 0x45 + options, 0, 0, 80, 0, 1]);
        f.extend_from_slice(&fragment.to_be_bytes());
        f.extend_from_slice(&[64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        f.extend(std::iter::repeat_n(1, usize::from(options) * 4));
    }
    let l4 = f.len();
    f.extend(4..64);
    (f, l4)
}

/// Returns the bytes that the digest omits.
fn omitted(frame: &[u8]) -> Vec<usize> {
    let base = of(frame);
    (0..frame.len())
        .filter(|i| {
            let mut f = frame.to_vec();
            f[*i] ^= 0x80;
            of(&f) == base
        })
        .collect()
}

#[test]
fn the_digest_is_siphash_1_3_as_documented() {
    // An independent implementation, on frames that are not IP packets: nothing is omitted.
    for len in (0..20).chain([45]) {
        let f: Vec<u8> = (1..=len as u8).collect();
        let mut message = (len as u32).to_le_bytes().to_vec();
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(&f);
        message.resize(message.len().next_multiple_of(8), 0);
        assert_eq!(of(&f), siphash_1_3(b"0123456789abcdef", &message), "{len} bytes");
    }
}

fn siphash_1_3(key: &[u8; 16], message: &[u8]) -> u64 {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
    let (k0, k1) = (word(&key[..8]), word(&key[8..]));
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    };
    assert!(message.len().is_multiple_of(8));
    let words = message.chunks(8).map(word).chain([(message.len() as u64) << 56]);
    for m in words {
        v[3] ^= m;
        round(&mut v);
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[test]
fn the_digest_omits_only_what_offloads_change() {
    for (tags, v6) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
        for (protocol, field) in [(6, 16), (17, 6)] {
            for options in if v6 { vec![0] } else { vec![0, 1, 5] } {
                let (f, l4) = frame(tags, v6, protocol, options, 0);
                let at = l4 + field;
                let end = DIGEST_BYTES + 4 * tags;
                let mut want = omitted_tcis(tags);
                want.extend(omitted_fields_of_ip(tags, v6));
                want.extend([at, at + 1].iter().filter(|_| at + 2 <= end));
                let covered: Vec<usize> = omitted(&f).into_iter().filter(|i| *i < end).collect();
                assert_eq!(covered, want, "{tags} tags, v6 {v6}, protocol {protocol}, {options} options");
            }
        }
        let (f, _) = frame(tags, v6, 1, 0, 0);
        let mut want = omitted_tcis(tags);
        want.extend(omitted_fields_of_ip(tags, v6));
        assert_eq!(omitted(&f), want, "ICMP is covered completely");
    }
}

/// Returns where the VLAN identifiers of tags are.
fn omitted_tcis(tags: usize) -> Vec<usize> {
    (0..tags).flat_map(|tag| [14 + 4 * tag, 15 + 4 * tag]).collect()
}

fn omitted_fields_of_ip(tags: usize, v6: bool) -> Vec<usize> {
    let ip = 14 + 4 * tags;
    if v6 { vec![] } else { vec![ip + 4, ip + 5, ip + 10, ip + 11] }
}

/// A switch adds and removes tags at its ports, and interfaces store them beside the packet.
#[test]
fn vlan_tags_do_not_change_a_digest() {
    for v6 in [false, true] {
        for payload in [0, 20, 60, 300] {
            let digests = [0, 1, 2].map(|tags| {
                let mut f = frame(tags, v6, 6, 0, 0).0;
                f.truncate(f.len() - 60);
                f.extend((0..payload).map(|n| n as u8));
                let len = f.len() as u32;
                f.truncate(DIGEST_HEADER_BYTES);
                digest().digest(&f, len)
            });
            assert!(digests.iter().all(|d| *d == digests[0]), "v6 {v6}, {payload} bytes");
        }
    }
}

/// The cloud exchanges the identifications of two datagrams' fragments: the VM would join one's head and the
/// other's tail.
#[test]
fn a_fragments_identification_is_digested() {
    for tags in 0..=2 {
        for fragment in [0x2000, 0x2005, 0x0001, 0x1f00] {
            let a = frame(tags, false, 17, 0, fragment).0;
            for byte in [18, 19] {
                let mut b = a.clone();
                b[4 * tags + byte] ^= 1;
                assert_ne!(of(&a), of(&b), "{tags} tags, {fragment:#x}");
            }
        }
        for whole in [0, 0x4000, 0x8000] {
            let a = frame(tags, false, 17, 0, whole).0;
            let mut b = a.clone();
            b[4 * tags + 18] ^= 1;
            assert_eq!(of(&a), of(&b), "segmentation numbers anew: {whole:#x}");
        }
    }
}

#[test]
fn only_first_fragments_have_a_checksum() {
    let of_ip = omitted_fields_of_ip(0, false);
    // The header's checksum, and that of UDP.
    assert_eq!(omitted(&frame(0, false, 17, 0, 0x2005).0), of_ip[2..]);
    assert_eq!(omitted(&frame(0, false, 17, 0, 0x2000).0).len(), 4);
    let mut impossible = frame(0, false, 17, 0, 0).0;
    impossible[14] = 0x44;
    assert_eq!(omitted(&impossible), of_ip, "a header of 16 bytes is invalid");
}

#[test]
fn a_truncated_checksum_is_covered() {
    let (f, l4) = frame(0, false, 6, 0, 0);
    let cut = &f[..l4 + 17];
    let of_ip = omitted_fields_of_ip(0, false);
    assert_eq!(omitted(cut), of_ip);
    assert_eq!(omitted(&f[..l4 + 18]), [of_ip, vec![l4 + 16, l4 + 17]].concat());
}

#[test]
fn the_digest_depends_on_length_key_tenant_and_vm() {
    let f = [5; 200];
    let d = digest();
    assert_ne!(d.digest(&f, 200), d.digest(&f, 201));
    assert_eq!(d.digest(&f, 200), d.digest(&f[..DIGEST_BYTES], 200));
    assert_ne!(d.digest(&f[..119], 200), d.digest(&f[..118], 200), "bytes at the end count");
    assert_ne!(PacketDigest::new(b"0123456789abcdeg").digest(&f, 200), d.digest(&f, 200));
    let key = TenantKey::from_bytes([1; 32]);
    let at = |i: &Identity<'_>| PacketDigest::for_vm(&key, i).digest(&f, 200);
    assert_eq!(at(&ACME_WEB), at(&ACME_WEB), "both ends derive the same key");
    assert_ne!(at(&ACME_WEB), at(&Identity { vm: "db", ..ACME_WEB }));
    assert_ne!(at(&ACME_WEB), at(&Identity { tenant: "evil", ..ACME_WEB }));
    let other = TenantKey::from_bytes([2; 32]);
    assert_ne!(at(&ACME_WEB), PacketDigest::for_vm(&other, &ACME_WEB).digest(&f, 200));
}

proptest! {
    /// Any bytes and any length give a number without panic, and different frames give different numbers.
    #[test]
    fn any_frame_has_a_digest(a: Vec<u8>, b: Vec<u8>, len: u32) {
        let _ = digest().digest(&a, len);
        let (a, b) = (&a[..a.len().min(12)], &b[..b.len().min(12)]);
        // Nothing is omitted within an Ethernet header; frames that differ in trailing zeros differ
        // in length.
        if a != b && a.len() == b.len() {
            prop_assert_ne!(of(a), of(b));
        }
    }
}

/// Packets of any length, IP or not.
fn packets() -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    let ip = (0..3_usize, any::<bool>(), prop::sample::select(vec![1_u8, 6, 17]), 0..3_u8, 0..150_usize)
        .prop_map(|(tags, v6, protocol, options, len)| {
            let mut f = frame(tags, v6, protocol, options, 0).0;
            f.truncate(len);
            f
        });
    let any_bytes = prop::collection::vec(any::<u8>(), 0..150);
    prop::collection::vec((prop_oneof![ip, any_bytes], any::<u32>()), 0..40)
}

proptest! {
    #[test]
    fn batched_digests_equal_single_ones(packets in packets()) {
        let (key, mut batch, mut waiting) = (digest(), DigestBatch::default(), Vec::new());
        let check = |batch: &mut DigestBatch, waiting: &mut Vec<u64>| {
            let count = batch.len();
            prop_assert_eq!(&batch.finish(&key)[..count], &waiting[..]);
            prop_assert!(batch.is_empty());
            waiting.clear();
            Ok(())
        };
        for (header, len) in &packets {
            if batch.len() == LANES {
                prop_assert_eq!(batch.add(header, *len), None);
                check(&mut batch, &mut waiting)?;
            }
            prop_assert_eq!(batch.add(header, *len), Some(waiting.len()));
            waiting.push(key.digest(header, *len));
        }
        check(&mut batch, &mut waiting)?;
    }
}
