//! Ports that one process opens and another serves. One process is both here: the descriptors are all that
//! passes.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use p4shield_io::afxdp::handed::{self, Held, Parcel};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts, Error};
use p4shield_switch::Share;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{Scene, forward, usable};

fn open(interface: &str) -> (Held, Parcel) {
    handed::open(&AfxdpConfig::new([interface]), interface, Share::ALONE).unwrap()
}

fn is_released(held: &Held) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(held.lease(), PollFlags::IN)], Some(&now)).unwrap() > 0
}

/// Returns the descriptors as another process gets them.
fn sent(parcel: &Parcel) -> Vec<OwnedFd> {
    parcel.descriptors().iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
}

#[test]
fn handed_ports_forward_and_their_end_ends_the_lease() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut held = Vec::new();
        let names = ["p0", "p1"].map(str::to_owned);
        let mut all = AfxdpPorts::handed(&names, 1, |name, share| {
            let (holds, parcel) = open(name);
            held.push(holds);
            let descriptors = sent(&parcel);
            assert_eq!(descriptors.len(), parcel.description.descriptors());
            handed::adopt(&parcel.description, descriptors, share)
        });
        let mut ports = all.as_mut().unwrap().remove(0).0;
        assert!(ports.status(0).is_err(), "the opener has the XDP program's counters");
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    forward(&mut ports).unwrap();
                }
            });
            scene.wait_forwarding();
            stop.store(true, Ordering::Relaxed);
        });
        assert!(held.iter().all(|held| !is_released(held)));
        assert_eq!(held.iter().map(Held::name).collect::<Vec<_>>(), ["p0", "p1"]);
        drop(ports);
        assert!(held.iter().all(is_released));
        drop(held);
        assert!(!scene.host("link show p0").contains("xdp"));
    });
}

#[test]
fn a_port_that_comes_incomplete_is_refused() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let (held, parcel) = open("p0");
        let adopt = |descriptors, share| handed::adopt(&parcel.description, descriptors, share);
        let mut fewer = sent(&parcel);
        fewer.pop();
        assert!(matches!(adopt(fewer, Share::ALONE), Err(Error::Handed { .. })));
        let other = Share { threads: 2, first: 0 };
        assert!(matches!(adopt(sent(&parcel), other), Err(Error::Handed { .. })));
        let mut wrong = sent(&parcel);
        wrong.reverse();
        assert!(adopt(wrong, Share::ALONE).is_err());
        drop(parcel);
        assert!(is_released(&held), "what was refused is released");
    });
}
