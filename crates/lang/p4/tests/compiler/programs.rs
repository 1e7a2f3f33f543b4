//! The example programs, from source to verdict.

use crate::common::{Bench, COPY, checksum, ethernet, example, ipv4, tcp};
use p4shield_abi::info::{InfoStatus, field};
use p4shield_bpf::VmInfo;

const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

fn vlan(id: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut p = id.to_be_bytes().to_vec();
    p.extend(kind.to_be_bytes());
    p.extend(payload);
    ethernet(0x8100, &p)
}

#[test]
fn tcp_guard_denies_new_connections_only() {
    for name in ["programs/tcp_guard.p4", "programs/tcp_guard_all.p4"] {
        let mut b = Bench::new(&example(name));
        assert!(b.compiled.facts.longest_path <= 60, "{name}: {}", b.compiled.facts.longest_path);
        let frames = |flags| {
            let t = tcp(flags);
            [
                ethernet(0x800, &ipv4(5, 6, 0, &t)),
                ethernet(0x800, &ipv4(6, 6, 0x4000, &t)),
                ethernet(0x800, &ipv4(15, 6, 0, &t)),
                vlan(7, 0x800, &ipv4(5, 6, 0, &t)),
            ]
        };
        // Up to the threshold, all packets pass unchanged.
        b.know(&[(field::TCP_MEM_USED, 100), (field::TCP_MEM_THRESHOLD, 100)]);
        for f in frames(SYN).iter().chain(&frames(ACK)) {
            assert_eq!(b.passes(f), *f);
        }
        // Above the threshold, new connections are dropped.
        b.know(&[(field::TCP_MEM_USED, 101), (field::TCP_MEM_THRESHOLD, 100)]);
        frames(SYN).iter().chain(&frames(SYN | 0x40)).for_each(|f| b.drops(f));
        for f in frames(ACK).iter().chain(&frames(SYN_ACK)) {
            assert_eq!(b.passes(f), *f);
        }
        // Unknown information drops new connections too, for any reason.
        for status in [InfoStatus::Missing, InfoStatus::Stale, InfoStatus::Forged, InfoStatus::Replayed] {
            b.info = VmInfo::unknown(status);
            frames(SYN).iter().for_each(|f| b.drops(f));
            frames(ACK).iter().for_each(|f| assert_eq!(b.passes(f), *f));
        }
    }
}

#[test]
fn tcp_guard_passes_other_packets_and_drops_truncated_ones() {
    let mut b = Bench::new(&example("programs/tcp_guard.p4"));
    let t = tcp(SYN);
    for f in [
        ethernet(0x86dd, &[0; 40]),
        ethernet(0x806, &[0; 28]),
        ethernet(0x800, &ipv4(5, 17, 0, &t)),
        ethernet(0x800, &ipv4(5, 6, 0x0001, &t)),
        vlan(3, 0x86dd, &[0; 40]),
    ] {
        assert_eq!(b.passes(&f), f);
    }
    let whole = ethernet(0x800, &ipv4(7, 6, 0, &tcp(ACK)));
    let needed = 14 + 28 + 20;
    for len in 0..whole.len() {
        if len >= needed { drop(b.passes(&whole[..len])) } else { b.drops(&whole[..len]) }
    }
    // A header whose length field is less than the minimum.
    let mut lie = ethernet(0x800, &ipv4(5, 6, 0, &t));
    lie[14] = 0x44;
    b.drops(&lie);
}

#[test]
fn headers_beyond_the_copy_count_as_missing() {
    let mut b = Bench::new(&example("programs/tcp_guard.p4"));
    let long = ethernet(0x800, &ipv4(15, 6, 0, &[&tcp(ACK)[..], &[0; 400]].concat()));
    assert_eq!(b.passes(&long), long);
    assert!(long.len() > COPY);
}

#[test]
fn port_filter_counts_and_drops() {
    let mut b = Bench::new(&example("programs/port_filter.p4"));
    let to = |protocol, port: u16| {
        let mut t = tcp(SYN);
        t[2..4].copy_from_slice(&port.to_be_bytes());
        ethernet(0x800, &ipv4(5, protocol, 0, &t))
    };
    for (protocol, port, service) in [(6, 22, 1), (6, 80, 2), (6, 443, 2), (17, 443, 2), (17, 53, 3)] {
        let before = b.map_value("filter_services", &[service, 0, 0, 0]);
        let f = to(protocol, port);
        assert_eq!(b.passes(&f), f);
        assert_eq!(b.map_value("filter_services", &[service, 0, 0, 0])[0], before[0] + 1);
    }
    for (protocol, port) in [(6, 53), (17, 22), (6, 0), (17, 0xffff)] {
        b.drops(&to(protocol, port));
    }
    assert_eq!(b.map_value("filter_services", &[0; 4])[0], 4);
    let other = ethernet(0x800, &ipv4(5, 1, 0, &[8, 0, 0, 0]));
    assert_eq!(b.passes(&other), other);
}

#[test]
fn dscp_mark_rewrites_and_keeps_the_checksum_valid() {
    let mut b = Bench::new(&example("programs/dscp_mark.p4"));
    // 10.0.0.0/8 gets DSCP 46: action 0, data at byte 4.
    b.set_map("mark_classes", &[8, 0, 0, 0, 10, 0, 0, 0], &[0, 0, 0, 0, 46, 0, 0, 0]);
    let f = ethernet(0x800, &ipv4(5, 17, 0, &[1, 2, 3, 4]));
    let out = b.passes(&f);
    assert_eq!(out[15], 46 << 2);
    assert_eq!(out[22], 63);
    assert_eq!(checksum(&out[14..34]), 0, "the checksum is right");
    assert_eq!((&out[..14], &out[34..]), (&f[..14], &f[34..]));
    let mut old = f.clone();
    old[22] = 1;
    b.drops(&old);
    let other = ethernet(0x86dd, &[0; 40]);
    assert_eq!(b.passes(&other), other);
}

#[test]
fn dscp_mark_applies_its_default_action_until_changed() {
    let mut b = Bench::new(&example("programs/dscp_mark.p4"));
    let mut f = ethernet(0x800, &ipv4(5, 17, 0, &[1, 2, 3, 4]));
    f[15] = 0x2b;
    let out = b.passes(&f);
    assert_eq!(out[15], 0x03, "DSCP 0, ECN kept");
    b.set_map("mark_classes_default", &[0; 4], &[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.passes(&f)[15], 0x2b, "NoAction");
}

#[test]
fn vlan_tags_are_pushed_and_popped() {
    let (mut push, mut pop) =
        (Bench::new(&example("programs/vlan_push.p4")), Bench::new(&example("programs/vlan_pop.p4")));
    push.meta.vm = 5;
    pop.meta.vm = 5;
    for payload in [vec![], vec![1, 2, 3], (0..200).collect::<Vec<u8>>()] {
        let f = ethernet(0x800, &payload);
        let tagged = push.run(&f);
        assert!(tagged.pass);
        assert_eq!(tagged.bytes, vlan(105, 0x800, &payload));
        assert_eq!(tagged.total as usize, f.len() + 4);
        let back = pop.run(&tagged.bytes);
        assert!(back.pass);
        assert_eq!(back.bytes[..14], f[..14]);
        assert_eq!(back.total as usize, f.len());
    }
    push.drops(&vlan(1, 0x800, &[]));
    pop.drops(&vlan(106, 0x800, &[]));
    let plain = ethernet(0x800, &[9]);
    assert_eq!(pop.passes(&plain), plain);
}

#[test]
fn hysteresis_remembers() {
    let mut b = Bench::new(&example("programs/hysteresis.p4"));
    let syn = ethernet(0x800, &ipv4(5, 6, 0, &tcp(SYN)));
    let mut used = |n, pass| {
        b.know(&[(field::TCP_MEM_USED, n), (field::TCP_MEM_THRESHOLD, 1000)]);
        assert_eq!(b.run(&syn).pass, pass, "{n} used");
    };
    used(1000, true);
    used(1001, false);
    used(900, false);
    used(750, false);
    used(749, true);
    used(900, true);
}

#[test]
fn externs_in_c_are_linked() {
    let dir = std::env::temp_dir().join(format!("p4-extern-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let c = format!("{}/../../../examples/externs/flow_score.c", env!("CARGO_MANIFEST_DIR"));
    let o = dir.join("flow_score.o");
    let run =
        std::process::Command::new("clang").args(["-target", "bpf", "-O2", "-c", &c, "-o"]).arg(&o).status();
    let Ok(status) = run else {
        return p4shield_need::skip("clang", "clang is not installed");
    };
    assert!(status.success());
    let object = std::fs::read(&o).expect("clang's object");
    std::fs::remove_dir_all(&dir).expect("removed");
    let mut b = Bench::linked(&example("externs/flow_score.p4"), &[object]);
    assert_eq!(b.compiled.facts.externs, ["flow_score"]);
    let f = ethernet(0x800, &ipv4(5, 17, 0, &[0; 8]));
    assert!(b.run(&f).pass, "unknown: nothing is shed");
    b.know(&[(field::APP_BASE, 256)]);
    b.drops(&f);
    b.know(&[(field::APP_BASE, 0)]);
    assert!(b.run(&f).pass);
}
