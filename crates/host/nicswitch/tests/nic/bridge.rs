//! The switch of the kernel's bridge. The tests' machine may have none that filters VLANs, so a guest of QEMU
//! with the distribution's kernel runs this program: those tests that are the same for each back end, and
//! those here that are a bridge's.

use std::cell::RefCell;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use macaddr::MacAddr6;
use p4shield_nicswitch::{Bridge, Changes, NicSwitch, Reason};
use p4shield_testbed::{Guest, NetNs, wait_until};
use p4shield_topology::{Port, Role};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::agreement::Script;
use crate::bed::*;
use crate::frames::*;
use crate::oracle::{EXTENSION_HEADERS, World};

/// Modules of the guest's kernel.
const MODULES: [&str; 8] =
    ["bridge", "br_netfilter", "veth", "tun", "nf_tables", "nft_limit", "nft_objref", "8021q"];
/// Tests of other modules, by the start of their names. A bridge passes more of them, but an emulated guest
/// takes seconds for each.
const SHARED: [&str; 7] = [
    "attacks::",
    "paths::each_step_of_the_chains_is_open",
    "rate::",
    "life::another_tenants_change_loses_no_packet",
    "life::the_hosts_stack_answers_no_vm",
    "life::the_hosts_stack_sends_nothing_into_a_port",
    "life::vms_at_taps_are_served",
];

/// Returns the path of a program.
fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    folders.map(|folder| folder.join(name)).into_iter().find(|path| path.exists())
}

#[test]
fn the_kernels_bridge_is_the_nic_switch() {
    if let Err(why) = Guest::usable() {
        return p4shield_need::skip("qemu", why);
    }
    let Some(nft) = program("nft") else {
        return p4shield_need::skip("nft", "there is no program nft; install the package nftables");
    };
    let this = std::env::current_exe().unwrap();
    let name = this.file_name().unwrap().to_str().unwrap().to_owned();
    let mut setup = Guest::setup().program(&this).program(&nft).modules(&MODULES);
    for tool in ["ip", "tc"] {
        setup = setup.program(&program(tool).expect(tool));
    }
    let mut guest = setup.start().unwrap();
    guest.wait_booted().unwrap();
    let tests = std::env::var("P4SHIELD_TEST_IN_GUEST")
        .unwrap_or_else(|_| "bridge::inside ".to_owned() + &SHARED.join(" "));
    let line =
        format!("{BACK_END}=bridge {name} --include-ignored --test-threads=1 --nocapture {tests} 2>&1");
    let result = guest.run(&line, 1800).unwrap();
    println!("{}", result.output);
    assert_eq!(result.code, 0, "{}\n{}", result.output, guest.log());
    for test in SHARED.iter().chain(&["bridge::inside"]) {
        assert!(result.output.contains(&format!("test {test}")), "{test} did not run");
    }
}

#[test]
fn a_kernel_filters_vlans_or_is_refused() {
    if let Err(why) = p4shield_testbed::usable() {
        return p4shield_need::skip("machine", why);
    }
    if program("nft").is_none() {
        return p4shield_need::skip("nft", "there is no program nft; install the package nftables");
    }
    let host = NetNs::create("plain").unwrap();
    host_rules_see_bridges(&host, false);
    let folder = std::env::temp_dir().join(format!("p4s-bridge-{}", std::process::id()));
    let result = host.inside(|| Bridge::new(BRIDGE, &folder).apply(&ports()));
    if host.ip("link add twin type bridge vlan_filtering 1").is_ok() {
        assert_eq!(result.unwrap().absent.len(), NAMES.len());
        host.inside(|| Bridge::new(BRIDGE, &folder).delete()).unwrap();
        return;
    }
    let error = result.unwrap_err().to_string();
    assert!(error.contains("CONFIG_BRIDGE_VLAN_FILTERING") && error.contains("XDP"), "{error}");
    assert!(host.ip(&format!("link show {BRIDGE}")).is_err() && !folder.exists());
}

mod inside {
    use super::*;

    /// Returns all that the kernel has of the switch.
    fn kernel(bed: &Bed) -> String {
        let ip = bed.host.ip("-d -o link show").unwrap();
        // Timers of bridges go on.
        let is_timer = |word: &&str| word.contains('.') && word.parse::<f64>().is_ok();
        let ip = ip.split_whitespace().filter(|word| !is_timer(word)).collect::<Vec<_>>().join(" ");
        // An interface that just came up says so some time later.
        let ip = ip.replace("NO-CARRIER,", "").replace("state UNKNOWN", "state UP");
        let ip = ip.replace("state DOWN", "state UP").replace("LOWERLAYERDOWN", "UP");
        let nft = bed.host.command("nft").args(["-a", "list", "ruleset"]).output().unwrap();
        // Counters go on.
        let nft = String::from_utf8(nft.stdout).unwrap();
        let rules: Vec<&str> = nft.lines().filter(|line| !line.contains("packets ")).collect();
        ip + &rules.join("\n")
    }

    fn without_b() -> Vec<Port> {
        ports().into_iter().filter(|port| port.tenant.as_deref() != Some("b")).collect()
    }

    fn nft(bed: &Bed, words: &str) {
        let output = bed.host.command("nft").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns whether a frame arrives before another one.
    fn arrives(bed: &Bed, from: &str, frame: &[u8], to: &str) -> bool {
        bed.sockets[from].send(frame);
        bed.before_another(to).iter().any(|came| came == frame)
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn ports_have_their_settings_at_the_bridge() {
        let bed = Bed::build().unwrap();
        let links = bed.host.ip("-d -o link show").unwrap();
        for (name, isolated, flood, group, locked) in [
            ("a1", "on", "off", "off", "on"),
            ("ga", "off", "off", "on", "on"),
            ("ia", "on", "off", "on", "on"),
            ("wan", "off", "on", "on", "off"),
        ] {
            let line = links.lines().find(|line| line.contains(&format!(" {name}@"))).unwrap();
            for setting in [
                "learning off".to_owned(),
                format!("isolated {isolated}"),
                format!(" flood {flood}"),
                format!("mcast_flood {group}"),
                format!("bcast_flood {group}"),
                format!("locked {locked}"),
            ] {
                assert!(line.contains(&setting), "{name}: {setting}: {line}");
            }
        }
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn the_same_ports_again_change_nothing() {
        let bed = Bed::build().unwrap();
        let (before, counters) = (kernel(&bed), bed.counters());
        assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
        let mut reversed = ports();
        reversed.reverse();
        assert_eq!(bed.apply(&reversed).unwrap(), Changes::default());
        assert_eq!(kernel(&bed), before);
        assert_eq!(bed.counters(), counters);
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn a_change_names_the_ports_that_it_concerns() {
        let bed = Bed::build().unwrap();
        let whole = kernel(&bed);
        let changes = bed.apply(&without_b()).unwrap();
        assert_eq!((changes.removed, changes.policy), (vec!["b1".into(), "gb".into(), "ib".into()], true));
        // The outside reaches one compartment less.
        assert_eq!((changes.added, changes.changed), (vec![], vec!["wan".into()]));
        let left = kernel(&bed);
        for label in ["in-b1-", "out-gb-", "ib-"] {
            assert!(whole.contains(label) && !left.contains(label), "{label}: {left}");
        }
        let changes = bed.apply(&ports()).unwrap();
        assert_eq!(
            (changes.added, changes.changed),
            (vec!["b1".into(), "gb".into(), "ib".into()], vec!["wan".into()])
        );
        let mut moved = ports();
        moved[1].role = Role::Vm { vlan: A, mac: mac(0x77), addresses: vec![v4(0x77).into()] };
        assert_eq!(bed.apply(&moved).unwrap().changed, ["a2", "ga"]);
        let new = ethernet(GA, mac(0x77), IPV4, &udp(v4(0x77).into(), v4(1).into()));
        let old = ethernet(GA, A2, IPV4, &udp(v4(0xa2).into(), v4(1).into()));
        assert!(arrives(&bed, "a2", &new, "ga"));
        assert!(!arrives(&bed, "a2", &old, "ga"));
        // A station and an address that change places.
        let mut swapped = moved.clone();
        (swapped[0].role, swapped[1].role) = (moved[1].role.clone(), moved[0].role.clone());
        assert_eq!(bed.apply(&swapped).unwrap().changed, ["a1", "a2"]);
        let before = bed.counters();
        for name in ["a2", "a1"] {
            bed.sockets[name].send(&new);
        }
        let after = bed.wait_for("a1", before["a1"].received_packets + 1);
        assert_eq!(after["a1"].dropped_in_all(), before["a1"].dropped_in_all());
        assert_eq!(after["a2"].dropped(Reason::SourceMac), before["a2"].dropped(Reason::SourceMac) + 1);
        assert_eq!(after["ga"].delivered_packets, before["ga"].delivered_packets + 1);
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn what_another_changed_is_set_back() {
        let bed = Bed::build().unwrap();
        let (_, good) = allowed_to("ga");
        let foreign = ethernet(GA, A1, IPV4, &udp(v4(0xa2).into(), v4(1).into()));
        assert!(arrives(&bed, "a1", &good, "ga") && !arrives(&bed, "a1", &foreign, "ga"));
        for change in ["isolated off", "learning on locked off", "flood on mcast_flood on"] {
            bed.host.ip(&format!("link set a1 type bridge_slave {change}")).unwrap();
            assert_eq!(bed.apply(&ports()).unwrap().changed, ["a1"], "{change}");
        }
        bed.host.ip(&format!("link set {BRIDGE} type bridge mcast_snooping 1 vlan_default_pvid 1")).unwrap();
        bed.apply(&ports()).unwrap();
        let link = bed.host.ip(&format!("-d link show {BRIDGE}")).unwrap();
        assert!(link.contains("mcast_snooping 0") && link.contains("vlan_default_pvid 0"), "{link}");
        bed.host.ip("link set b1 nomaster").unwrap();
        assert_eq!(bed.apply(&ports()).unwrap().changed, ["b1"]);
        let chain =
            kernel(&bed).lines().find_map(|l| l.trim().strip_prefix("chain in-a1-").map(str::to_owned));
        let chain = format!("in-a1-{}", chain.unwrap().split(' ').next().unwrap());
        nft(&bed, &format!("insert rule netdev p4shield-{BRIDGE} {chain} accept"));
        assert_eq!(bed.apply(&ports()).unwrap().changed, ["a1"]);
        assert!(arrives(&bed, "a1", &good, "ga") && !arrives(&bed, "a1", &foreign, "ga"));
        assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
    }

    /// As a restart of nftables' own service does.
    #[test]
    #[ignore = "runs in a guest"]
    fn without_rules_tenants_stay_apart() {
        let bed = Bed::build().unwrap();
        nft(&bed, "flush ruleset");
        let (_, good) = allowed_to("ga");
        let good = good.as_slice();
        bed.sockets["a1"].send(good);
        wait_until("the twin's arrival", 10, || bed.sockets["ga"].receive().as_deref() == Some(good))
            .unwrap();
        let to = |mac: MacAddr6| [mac.as_bytes(), &good[6..]].concat();
        let from = |mac: MacAddr6| [&good[..6], mac.as_bytes(), &good[12..]].concat();
        for bad in [
            to(B1),
            to(GB),
            to(A2),
            to(IA),
            to(MacAddr6::broadcast()),
            tagged(good, 0x8100, B),
            from(A2),
            from(B1),
        ] {
            bed.sockets["a1"].send(&bad);
        }
        // The last one of a1's.
        let last = ethernet(GA, A1, IPV4, &udp(v4(0xa1).into(), v4(9).into()));
        bed.sockets["a1"].send(&last);
        let mut at_gateway = Vec::new();
        wait_until("the last frame", 10, || {
            at_gateway.extend(std::iter::from_fn(|| bed.sockets["ga"].receive()));
            at_gateway.contains(&last)
        })
        .unwrap();
        let is_ours = |frame: &Vec<u8>| frame[12..14] != [0x86, 0xdd] && !frame.ends_with(&last[42..]);
        at_gateway.retain(is_ours);
        assert_eq!(at_gateway, [to(MacAddr6::broadcast())], "their own gateway");
        for name in ["a2", "b1", "gb", "ia", "ib", "wan"] {
            let came: Vec<_> = std::iter::from_fn(|| bed.sockets[name].receive()).filter(is_ours).collect();
            assert!(came.is_empty(), "{name}: {came:02x?}");
        }
        let changes = bed.apply(&ports()).unwrap();
        assert_eq!(changes.added.len(), 8, "{changes:?}");
        let foreign = ethernet(GA, A1, IPV4, &udp(v4(0xa2).into(), v4(1).into()));
        assert!(arrives(&bed, "a1", good, "ga") && !arrives(&bed, "a1", &foreign, "ga"));
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn an_interface_that_is_gone_is_no_destination() {
        let mut bed = Bed::build().unwrap();
        let (from, frame) = allowed_to("a1");
        bed.host.ip("link del a1").unwrap();
        let before = bed.counters();
        assert!(!before.contains_key("a1"), "it has no interface");
        let changes = bed.apply(&ports()).unwrap();
        assert_eq!((changes.absent, changes.policy), (vec!["a1".into()], true));
        bed.sockets[from].send(&frame);
        let drops = || bed.counters()[from].dropped(Reason::NoPort) - before[from].dropped(Reason::NoPort);
        wait_until("the drop", 10, || drops() == 1).unwrap();
        assert!(bed.apply(&ports()).unwrap().is_empty(), "absence is no change");
        bed.make("a1");
        assert_eq!(bed.apply(&ports()).unwrap().added, ["a1"]);
        assert_eq!(bed.try_frame(from, &frame), delivered("a1"));
    }

    /// Returns random frames, each with the port that sends it.
    fn random_frames() -> Vec<(&'static str, Vec<u8>)> {
        let frames = RefCell::new(Vec::new());
        let cases = p4shield_need::extent(1000, 20_000);
        // The same frames in each run: an emulated guest tries too few for others to find more.
        let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, same);
        let made = runner.run(&vec(any::<u8>(), 0..90), |bytes| {
            let mut script = Script(bytes.iter());
            let from = NAMES[script.below(NAMES.len())];
            let frame = script.frame(from);
            frames.borrow_mut().push((from, frame));
            Ok(())
        });
        made.unwrap();
        frames.into_inner()
    }

    /// Returns the number of extension headers of an IPv6 packet in a frame, as far as it is counted here.
    fn extension_headers(frame: &[u8]) -> usize {
        let (mut next, mut at, mut count) = (frame[20], 54, 0);
        while [0, 43, 44, 51, 60].contains(&next) && at + 8 <= frame.len() && count <= EXTENSION_HEADERS {
            let units = usize::from(frame[at + 1]);
            let length = match next {
                44 => 8,
                51 => (units + 2) * 4,
                _ => (units + 1) * 8,
            };
            (next, at, count) = (frame[at], at + length, count + 1);
        }
        count
    }

    /// Returns a frame whose IPv6 packet, if it has one, ends where the frame does. It carries nothing if the
    /// sender is one whose messages the rules do not read, or if nftables walks more headers than the oracle.
    fn whole(from: &str, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if frame.len() >= 54 && frame[12..14] == [0x86, 0xdd] {
            let length = (frame.len() - 54) as u16;
            frame[18..20].copy_from_slice(&length.to_be_bytes());
            let is_long = extension_headers(&frame) > EXTENSION_HEADERS;
            if is_long || ["ga", "gb", "wan"].contains(&from) {
                frame[20] = 59;
            }
        }
        frame
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn no_random_frame_passes_that_the_oracle_refuses() {
        let bed = Bed::build().unwrap();
        let mtus = NAMES.into_iter().map(|name| (name.to_owned(), 1500)).collect();
        let world = World { ports: ports(), mtus };
        let (mut allowed, mut arrived) = (0, 0);
        // The host sent before it had the switch.
        NAMES.into_iter().for_each(|name| drop(bed.before_another(name)));
        // A socket keeps about 250 frames.
        for part in random_frames().chunks(100) {
            for (from, frame) in part {
                bed.sockets[from].send(frame);
            }
            for name in NAMES {
                let may = part.iter().filter(|(from, frame)| world.judge(from, frame) == Ok(name));
                let may: Vec<_> = may.map(|(_, frame)| frame).collect();
                let mut came = bed.before_another(name);
                // The last one is the bed's own.
                came.pop();
                // The kernel's reader sees the frame's end, not the earlier one that a header may state.
                let is_allowed = |frame: &Vec<u8>| {
                    let mut senders = part.iter().filter(|(_, sent)| sent == frame);
                    senders.any(|(from, _)| world.judge(from, &whole(from, frame)) == Ok(name))
                };
                for frame in &came {
                    let is_good = may.contains(&frame) || is_allowed(frame);
                    assert!(is_good, "{name} receives {frame:02x?}");
                }
                // A bridge refuses more of IPv6, and the source address 0 from the uplink.
                for frame in &may {
                    let is_strict = frame[12..14] == [0x86, 0xdd] || frame[6..12] == [0; 6];
                    assert!(is_strict || came.contains(frame), "{name} does not receive {frame:02x?}");
                }
                allowed += may.len();
                arrived += came.len();
            }
        }
        println!("{arrived} of {allowed} allowed frames arrived");
        assert!(arrived > 50 && 2 * arrived > allowed, "{arrived} of {allowed}");
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn frames_for_bridges_do_not_reach_the_host() {
        let bed = Bed::build().unwrap();
        let (_, good) = allowed_to("ga");
        for last in [0, 1, 2, 14, 15] {
            let bad = [&[1, 0x80, 0xc2, 0, 0, last], &good[6..]].concat();
            assert_eq!(bed.try_frame("a1", &good), delivered("ga"));
            assert_eq!(bed.try_frame("a1", &bad), dropped(Reason::Destination), "{last}");
        }
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn an_interface_of_another_bridge_is_refused() {
        let bed = Bed::without_switch().unwrap();
        bed.host.ip("link add other type bridge").unwrap();
        bed.host.ip("link set b1 master other").unwrap();
        let error = bed.apply(&ports()).unwrap_err().to_string();
        assert!(error.contains("b1") && error.contains("nomaster"), "{error}");
        assert!(bed.host.ip("-o link show b1").unwrap().contains("master other"));
        assert!(arrives(&bed, "a1", &allowed_to("ga").1, "ga"), "another port");
        let (from, frame) = allowed_to("b1");
        bed.sockets[from].send(&frame);
        wait_until("the drop", 10, || bed.counters()[from].dropped(Reason::NoPort) == 1).unwrap();
        bed.host.ip("link set b1 nomaster").unwrap();
        assert_eq!(bed.apply(&ports()).unwrap().added, ["b1"]);
        assert_eq!(bed.try_frame(from, &frame), delivered("b1"));
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn a_bridge_of_another_program_is_left_alone() {
        let bed = Bed::without_switch().unwrap();
        bed.host.ip(&format!("link add {BRIDGE} type bridge")).unwrap();
        let error = bed.apply(&ports()).unwrap_err().to_string();
        assert!(error.contains(BRIDGE) && error.contains("another program"), "{error}");
        assert!(bed.host.inside(|| bed.nic().delete()).is_err());
        bed.host.ip(&format!("link del {BRIDGE}")).unwrap();
        assert_eq!(bed.apply(&ports()).unwrap().added.len(), 8);
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn what_a_bridge_cannot_do_is_refused() {
        let bed = Bed::without_switch().unwrap();
        let apply = |ports: &[Port]| bed.apply(ports).unwrap_err().to_string();
        let mut list = ports();
        list[0].interface = "a{1".into();
        assert!(apply(&list).contains("rename"), "{}", apply(&list));
        let mut list = ports();
        for port in &mut list[..3] {
            if let Role::Vm { vlan, .. } | Role::Gateway { vlan, .. } = &mut port.role {
                *vlan = 4094;
            }
        }
        assert!(apply(&list).contains("outside_vlan"), "{}", apply(&list));
        host_rules_see_bridges(&bed.host, true);
        assert!(
            apply(&ports()).contains("set net.bridge.bridge-nf-call-iptables to 0"),
            "{}",
            apply(&ports())
        );
        host_rules_see_bridges(&bed.host, false);
        assert!(bed.host.ip(&format!("link show {BRIDGE}")).is_err());
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn an_interface_may_have_the_mac_address_of_its_vm() {
        let bed = Bed::without_switch().unwrap();
        bed.host.ip(&format!("link set a1 address {A1}")).unwrap();
        bed.apply(&ports()).unwrap();
        for to in ["ga", "a1"] {
            let (from, frame) = allowed_to(to);
            assert_eq!(bed.try_frame(from, &frame), delivered(to));
        }
        assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
    }

    #[test]
    #[ignore = "runs in a guest"]
    fn deletion_leaves_nothing() {
        let bed = Bed::without_switch().unwrap();
        let before = kernel(&bed);
        bed.apply(&ports()).unwrap();
        assert!(kernel(&bed) != before);
        bed.host.inside(|| bed.nic().delete()).unwrap();
        assert_eq!(kernel(&bed), before);
        assert!(!Path::new(Bridge::FOLDER).exists());
        bed.host.inside(|| bed.nic().delete()).unwrap();
        assert!(bed.counters().is_empty());
    }

    /// States that a process leaves that is killed between two steps.
    #[test]
    #[ignore = "runs in a guest"]
    fn a_killed_processs_change_is_completed() {
        let bed = Bed::build().unwrap();
        let again = |changed: &[&str]| {
            assert_eq!(bed.apply(&ports()).unwrap().changed, changed);
            assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
        };
        bed.host.ip("link set a1 nomaster").unwrap();
        bed.host.ip(&format!("link set a1 master {BRIDGE}")).unwrap();
        // It has its rules and no VLAN: nothing passes.
        bed.sockets["a1"].send(&allowed_to("ga").1);
        bed.sockets["a2"].send(&ethernet(GA, A2, IPV4, &udp(v4(0xa2).into(), v4(1).into())));
        let mut came = Vec::new();
        wait_until("the other's frame", 10, || {
            came.extend(std::iter::from_fn(|| bed.sockets["ga"].receive()));
            came.iter().any(|frame| frame[6..12] == *A2.as_bytes())
        })
        .unwrap();
        assert!(!came.iter().any(|frame| frame[6..12] == *A1.as_bytes()), "{came:02x?}");
        again(&["a1"]);
        bed.host.ip(&format!("link set {BRIDGE} down")).unwrap();
        assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
        assert!(arrives(&bed, "a1", &allowed_to("ga").1, "ga"));
        let mut limited = ports();
        limited[0].packet_rate = NonZero::new(5);
        assert_eq!(bed.apply(&limited).unwrap().changed, ["a1"]);
        again(&["a1"]);
    }
}
