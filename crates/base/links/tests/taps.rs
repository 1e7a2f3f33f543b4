//! Taps and interfaces in network namespaces of the tests' own.

use p4shield_links::{Tap, index_of, rename, start, start_in};
use p4shield_testbed::{NetNs, wait_until};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::Command;

/// Returns a namespace with a pair of interfaces, `v0` and `v1`, that are up.
fn scene(name: &str) -> Option<NetNs> {
    p4shield_testbed::usable().map_err(|why| p4shield_need::skip("machine", why)).ok()?;
    let ns = NetNs::create(name).unwrap();
    ns.disable_ipv6().unwrap();
    for words in ["link add v0 type veth peer name v1", "link set v0 up", "link set v1 up"] {
        ns.ip(words).unwrap();
    }
    Some(ns)
}

#[test]
fn a_tap_has_all_packets_and_ends_with_its_owner() {
    let Some(ns) = scene("links-tap") else { return };
    ns.inside(|| {
        let tap = Tap::of("v0", "t").unwrap();
        assert_eq!(tap.mtu().unwrap(), 1500);
        start(tap.name()).unwrap();
        let error = format!("{:?}", Tap::of("v0", "t2").unwrap_err());
        assert!(error.contains("another user"), "{error}");
        ns.ip("addr add 10.0.0.1/24 dev v1").unwrap();
        ns.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev v1").unwrap();
        let _ = ns.command("ping").args(["-c1", "-W1", "10.0.0.2"]).output().unwrap();
        let mut file = std::fs::File::from(tap.as_fd().try_clone_to_owned().unwrap());
        let mut packet = [0; 2048];
        // Behind the header of virtio-net, 10 bytes.
        let is_there = || file.read(&mut packet).is_ok_and(|_| packet[10..16] == [2, 0, 0, 0, 0, 0x99]);
        wait_until("the packet", 5, is_there).unwrap();
        drop(tap);
        assert!(index_of("t").is_err(), "it is deleted");
        Tap::of("v0", "t").unwrap();
    });
}

#[test]
fn a_tap_of_another_namespace_ends_with_it() {
    let Some(ns) = scene("links-ends") else { return };
    ns.inside(|| {
        let mut sleeper = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
        let pid = sleeper.id();
        let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).unwrap();
        let own = namespace("thread-self");
        wait_until("the namespace", 5, || namespace(&pid.to_string()) != own).unwrap();
        let theirs = std::fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
        let file = Tap::of_in(theirs.as_fd(), "v0", "t").unwrap().into_file();
        start_in(theirs.as_fd(), "t").unwrap();
        assert_eq!(namespace("thread-self"), own, "the caller stays");
        assert!(Tap::of("v0", "t").is_err(), "the interface has a user");
        let none = std::fs::File::open("/dev/null").unwrap();
        assert!(start_in(theirs.as_fd(), "nothing").is_err() && Tap::of_in(none.as_fd(), "v1", "t").is_err());
        drop((file, theirs));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        // Another tap needs the interface to be free.
        wait_until("the end of the tap", 10, || Tap::of("v0", "t").is_ok()).unwrap();
    });
}

#[test]
fn a_tap_of_another_namespace_is_never_in_this_one() {
    let (Some(ns), Some(other)) = (scene("links-in"), scene("links-other")) else { return };
    let theirs = || other.inside(|| std::fs::File::open("/proc/thread-self/ns/net").unwrap());
    ns.inside(|| {
        let tap = Tap::of_in(theirs().as_fd(), "v0", "t").unwrap();
        assert!(index_of("t").is_err() && other.ip("link show dev t").is_ok());
        start_in(theirs().as_fd(), tap.name()).unwrap();
        assert_eq!(tap.mtu().unwrap(), 1500);
        ns.ip("addr add 10.0.0.1/24 dev v1").unwrap();
        ns.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev v1").unwrap();
        let _ = ns.command("ping").args(["-c1", "-W1", "10.0.0.2"]).output().unwrap();
        let mut file = std::fs::File::from(tap.as_fd().try_clone_to_owned().unwrap());
        let mut packet = [0; 2048];
        let is_there = || file.read(&mut packet).is_ok_and(|_| packet[10..16] == [2, 0, 0, 0, 0, 0x99]);
        wait_until("the packet", 5, is_there).unwrap();
        drop(tap);
        assert!(other.ip("link show dev t").is_err(), "it is deleted");
        drop(Tap::of_in(theirs().as_fd(), "v0", "t").unwrap().into_file());
        assert!(other.ip("link show dev t").is_ok(), "it stays");
        other.ip("link del dev t").unwrap();
        assert!(Tap::of_in(theirs().as_fd(), "nothing", "t").is_err());
    });
}

#[test]
fn interfaces_are_renamed_and_started_or_refused() {
    let Some(ns) = scene("links-name") else { return };
    ns.inside(|| {
        ns.ip("link set v0 down").unwrap();
        rename("v0", "other").unwrap();
        start("other").unwrap();
        assert!(ns.ip("-br link show other").unwrap().contains("UP"));
        for (from, to) in [("nothing", "c"), ("other", "v1"), ("v1", "a name/that is none")] {
            assert!(rename(from, to).is_err(), "{from} {to}");
        }
    });
}
