//! The compartment of a program's functions is stopped and killed at random moments while packets flow: each
//! packet that the switch receives leaves, in its order, or is dropped and counted.

use super::functions::lacks_clang;
use super::{Scene, wait_until};
use p4shield_need::extent;
use p4shield_p4switch::api::{self, Status};
use p4shield_testbed::campaign::Random;
use rustix::process::{Pid, Signal, kill_process};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lets every packet pass.
const PASSES: &str = r#"
#include "p4shield_program.h"
uint8_t refused(uint32_t src, uint8_t protocol)
{
    return src == 0 && protocol == 0;
}
"#;
/// Packets that are under way at most: what a veth holds, so that the kernel loses none before the switch.
const BURST: u32 = 96;
/// Longest pause between two events, and longest stop, in milliseconds: longer than the deadline.
const PAUSE: usize = 60;

impl Scene {
    fn state(&self) -> Status {
        api::status(&self.socket()).unwrap()
    }

    /// Sends numbered packets from the left host to the right one until `stop` is set. Returns their number.
    fn send_numbers(&self, stop: &AtomicBool) -> u32 {
        let from = self.left.inside(|| UdpSocket::bind("10.9.1.1:7000")).unwrap();
        let (mut number, before) = (0, self.state().ports[0].traffic.received);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..BURST {
                number += 1;
                from.send_to(&u32::to_be_bytes(number), "10.9.2.1:7000").unwrap();
            }
            let all = || self.state().ports[0].traffic.received == before + u64::from(number);
            wait_until("the burst's arrival", 20, all).unwrap();
        }
        number
    }

    /// Returns the numbers that arrive at the right host until none has come for half a second after `stop`.
    fn receive_numbers(&self, stop: &AtomicBool) -> Vec<u32> {
        let to = self.right.inside(|| UdpSocket::bind("10.9.2.1:7000")).unwrap();
        to.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let (mut numbers, mut bytes) = (Vec::new(), [0; 4]);
        loop {
            match to.recv(&mut bytes) {
                Ok(_) => numbers.push(u32::from_be_bytes(bytes)),
                Err(_) if stop.load(Ordering::Relaxed) => return numbers,
                Err(_) => {}
            }
        }
    }

    /// Stops or kills the compartment so many times. Returns how often it was killed.
    fn disturb(&self, random: &mut Random, events: u32) -> u64 {
        let mut kills = 0;
        for _ in 0..events {
            std::thread::sleep(Duration::from_millis(random.below(PAUSE) as u64));
            let pid = || self.state().functions.and_then(|f| f.pid).and_then(Pid::from_raw);
            wait_until("a compartment", 20, || pid().is_some()).unwrap();
            let Some(pid) = pid() else { continue };
            if random.below(4) == 0 {
                kills += u64::from(kill_process(pid, Signal::KILL).is_ok());
                wait_until("its end", 20, || self.state().functions.unwrap().restarts >= kills).unwrap();
            } else {
                kill_process(pid, Signal::STOP).unwrap();
                std::thread::sleep(Duration::from_millis(random.below(PAUSE) as u64));
                kill_process(pid, Signal::CONT).unwrap();
            }
        }
        kills
    }
}

fn dropped(status: &Status, reason: &str) -> u64 {
    status.dropped.iter().filter(|d| d.reason == reason).map(|d| d.packets).sum()
}

#[allow(clippy::print_stdout, reason = "the figures are of interest")]
#[test]
fn random_ends_of_a_compartment_leave_no_packet_uncounted() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    let _switch = scene.start_with_function(PASSES, &["--placement", "extern"]);
    wait_until("a ping", 20, || scene.pings()).unwrap();
    let before = scene.state();
    let seed = std::env::var("P4SHIELD_SEED").map_or(34, |s| s.parse().unwrap());
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, arrived, kills) = std::thread::scope(|threads| {
        let receiver = threads.spawn(|| scene.receive_numbers(&ended));
        let sender = threads.spawn(|| scene.send_numbers(&stop));
        let kills = scene.disturb(&mut Random::new(seed), extent(30, 600));
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap();
        wait_until("the last answers", 20, || scene.state().waiting == 0).unwrap();
        ended.store(true, Ordering::Relaxed);
        (sent, receiver.join().unwrap(), kills)
    });
    let after = scene.state();
    let passed = |status: &Status| status.ports[1].traffic.sent;
    let lost = ["unanswered", "calls_full"].map(|why| dropped(&after, why) - dropped(&before, why));
    println!("{sent} sent, {} arrived, {lost:?} lost, {kills} killed; seed {seed}", arrived.len());
    assert_eq!(passed(&after) - passed(&before) + lost[0] + lost[1], u64::from(sent), "{after:?}");
    assert!(lost[0] > 0 && !arrived.is_empty() && kills > 0, "{after:?}");
    assert!(arrived.windows(2).all(|pair| pair[0] < pair[1]), "a flow keeps its order");
    assert!(arrived.len() as u64 <= passed(&after) - passed(&before));
    assert_eq!(after.functions.unwrap().restarts, kills);
    wait_until("a ping through the last compartment", 20, || scene.pings()).unwrap();
}
