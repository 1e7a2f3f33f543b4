//! Every frame keeps one owner, whatever the application or the kernel does.

mod common;

use std::collections::BTreeSet;

use common::{CHUNK, ENTRIES, FRAMES, World};
use p4shield_afxdp::Descriptor;
use p4shield_xsk_relay::frames::UmemGeometry;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The application fills its n-th frame, or any address.
    Fill(usize, Option<u64>),
    /// The application sends its n-th frame, or any address and length.
    Send(usize, Option<(u64, u32)>),
    /// The application takes received and completed frames.
    TakeReceived,
    TakeCompleted,
    /// The kernel takes frames from the fill ring, and receives into its n-th one, or any address and
    /// length.
    KernelFill,
    KernelReceive(usize, Option<(u64, u32)>),
    /// The kernel takes packets to send, and completes its n-th one, or any address.
    KernelSend,
    Complete(usize, Option<u64>),
    /// The verdict source of a direction decides about its n-th packet.
    Decide(bool, usize, bool),
    Receive,
    Transmit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wild = || prop_oneof![8 => 0..u64::from(FRAMES * CHUNK), 1 => any::<u64>()];
    let n = || 0..64_usize;
    let step = prop_oneof![
        6 => n().prop_map(|n| Step::Fill(n, None)),
        1 => (n(), wild()).prop_map(|(n, a)| Step::Fill(n, Some(a))),
        6 => n().prop_map(|n| Step::Send(n, None)),
        1 => (n(), wild(), 0..4096_u32).prop_map(|(n, a, l)| Step::Send(n, Some((a, l)))),
        3 => Just(Step::TakeReceived),
        3 => Just(Step::TakeCompleted),
        3 => Just(Step::KernelFill),
        5 => n().prop_map(|n| Step::KernelReceive(n, None)),
        1 => (n(), wild(), 0..4096_u32).prop_map(|(n, a, l)| Step::KernelReceive(n, Some((a, l)))),
        3 => Just(Step::KernelSend),
        5 => n().prop_map(|n| Step::Complete(n, None)),
        1 => (n(), wild()).prop_map(|(n, a)| Step::Complete(n, Some(a))),
        6 => (any::<bool>(), n(), any::<bool>()).prop_map(|(r, n, p)| Step::Decide(r, n, p)),
        8 => Just(Step::Receive),
        8 => Just(Step::Transmit),
    ];
    prop::collection::vec(step, 0..400)
}

const fn frame(address: u64) -> u64 {
    address / CHUNK as u64
}

/// The frames that the honest party expects to own.
#[derive(Debug, Default)]
struct Expected {
    app: BTreeSet<u64>,
    app_filled: BTreeSet<u64>,
    app_sent: BTreeSet<u64>,
    kernel_filled: Vec<u64>,
    kernel_sending: Vec<u64>,
}

struct Exchange {
    world: World,
    b: Expected,
    /// Whether each party keeps to the rules; an honest party ignores wild values.
    honest_app: bool,
    honest_kernel: bool,
}

impl Exchange {
    fn new(honest_app: bool, honest_kernel: bool) -> Self {
        let geometry = UmemGeometry::new(u64::from(FRAMES * CHUNK), CHUNK, false).unwrap();
        let b = Expected { app: (0..u64::from(FRAMES)).collect(), ..Expected::default() };
        Self { world: World::new(geometry), b, honest_app, honest_kernel }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Fill(n, wild) => self.fill(n, wild),
            Step::Send(n, wild) => self.send(n, wild),
            Step::TakeReceived => self.take_received(),
            Step::TakeCompleted => self.take_completed(),
            Step::KernelFill => self.kernel_fill(),
            Step::KernelReceive(n, wild) => self.kernel_receive(n, wild),
            Step::KernelSend => self.kernel_send(),
            Step::Complete(n, wild) => self.complete(n, wild),
            Step::Decide(receive, n, pass) => {
                let w = &self.world;
                let verdicts = if receive { &w.receive_verdicts } else { &w.transmit_verdicts };
                verdicts.0.lock().unwrap().decide.push((n, pass));
            }
            Step::Receive => drop(self.world.receive.process(|| 1)),
            Step::Transmit => drop(self.world.transmit.process(|| 1)),
        }
        assert_eq!(self.world.owner_counts().total(), FRAMES);
    }

    fn nth(&self, n: usize) -> Option<u64> {
        self.b.app.iter().nth(n % self.b.app.len().max(1)).copied()
    }

    fn fill(&mut self, n: usize, wild: Option<u64>) {
        let ring = &mut self.world.app_fill;
        if ring.room(1) == 0 {
            return;
        }
        let own = self.nth(n);
        let ring = &mut self.world.app_fill;
        match wild {
            Some(address) if !self.honest_app => assert!(ring.push(address)),
            _ => {
                let Some(own) = own else { return };
                assert!(ring.push(own * u64::from(CHUNK)));
                self.b.app.remove(&own);
                self.b.app_filled.insert(own);
            }
        }
        ring.publish();
    }

    fn send(&mut self, n: usize, wild: Option<(u64, u32)>) {
        let own = self.nth(n);
        let ring = &mut self.world.app_transmit;
        if ring.room(1) == 0 {
            return;
        }
        match wild {
            Some((address, len)) if !self.honest_app => {
                assert!(ring.push(Descriptor { address, len, options: 0 }));
            }
            _ => {
                let Some(own) = own else { return };
                let address = own * u64::from(CHUNK) + n as u64;
                assert!(ring.push(Descriptor { address, len: 60, options: 0 }));
                self.b.app.remove(&own);
                self.b.app_sent.insert(own);
            }
        }
        ring.publish();
    }

    fn take_received(&mut self) {
        while let Some(d) = self.world.app_receive.pop() {
            let c = frame(d.address);
            if self.honest_app {
                assert!(self.b.app_filled.remove(&c), "received frame {c}, which was not filled");
            }
            self.b.app.insert(c);
        }
        self.world.app_receive.release();
    }

    fn take_completed(&mut self) {
        while let Some(address) = self.world.app_completion.pop() {
            let c = frame(address);
            if self.honest_app {
                assert!(self.b.app_sent.remove(&c), "completed frame {c}, which was not sent");
                self.b.app.insert(c);
            }
        }
        self.world.app_completion.release();
    }

    /// The kernel must not be given a frame that it already has.
    fn kernel_takes(&self, c: u64) {
        if self.honest_kernel {
            let has = self.b.kernel_filled.contains(&c) || self.b.kernel_sending.contains(&c);
            assert!(!has, "the kernel was given frame {c} twice");
        }
    }

    fn kernel_fill(&mut self) {
        while let Some(address) = self.world.kernel_fill.pop() {
            self.kernel_takes(frame(address));
            self.b.kernel_filled.push(frame(address));
        }
        self.world.kernel_fill.release();
    }

    fn kernel_send(&mut self) {
        while let Some(d) = self.world.kernel_transmit.pop() {
            self.kernel_takes(frame(d.address));
            self.b.kernel_sending.push(frame(d.address));
        }
        self.world.kernel_transmit.release();
    }

    fn kernel_receive(&mut self, n: usize, wild: Option<(u64, u32)>) {
        let ring = &mut self.world.kernel_receive;
        if ring.room(1) == 0 {
            return;
        }
        let filled = &mut self.b.kernel_filled;
        match wild {
            Some((address, len)) if !self.honest_kernel => {
                filled.retain(|&c| c != frame(address) || len > 2048);
                assert!(ring.push(Descriptor { address, len, options: 0 }));
            }
            _ if !filled.is_empty() => {
                let c = filled.swap_remove(n % filled.len());
                let address = c * u64::from(CHUNK) + 256;
                assert!(ring.push(Descriptor { address, len: 60, options: 0 }));
            }
            _ => {}
        }
        ring.publish();
    }

    fn complete(&mut self, n: usize, wild: Option<u64>) {
        let ring = &mut self.world.kernel_completion;
        let sending = &mut self.b.kernel_sending;
        if ring.room(1) == 0 {
            return;
        }
        match wild {
            Some(address) if !self.honest_kernel => assert!(ring.push(address)),
            _ if !sending.is_empty() => {
                let c = sending.swap_remove(n % sending.len());
                assert!(ring.push(c * u64::from(CHUNK) + 7));
            }
            _ => {}
        }
        ring.publish();
    }

    /// Runs all pending steps until nothing moves.
    fn settle(&mut self) {
        for verdicts in [&self.world.receive_verdicts, &self.world.transmit_verdicts] {
            verdicts.0.lock().unwrap().at_once = Some(true);
        }
        for _ in 0..64 {
            for (receive, n) in [(true, 0), (false, 0)] {
                self.step(Step::Decide(receive, n, false));
            }
            let all = [Step::Receive, Step::Transmit, Step::KernelSend, Step::Complete(0, None)];
            for step in all.into_iter().chain([Step::TakeReceived, Step::TakeCompleted]) {
                self.step(step);
            }
        }
    }
}

proptest! {
    #[test]
    fn an_honest_application_gets_each_frame_back_once(steps in steps()) {
        let mut run = Exchange::new(true, true);
        steps.into_iter().for_each(|s| run.step(s));
        prop_assert_eq!(run.world.frames.faults.total(), 0);
        run.settle();
        let counts = run.world.owner_counts();
        let waiting = counts.fill + counts.kernel_receive;
        prop_assert_eq!(counts.application + waiting, FRAMES, "{:?}", counts);
        prop_assert_eq!(run.b.app_sent.len(), 0, "every sent frame was completed");
        // Filled frames are in one of the two fill rings or with the kernel.
        let unread = run.b.app_filled.len() as u32 - waiting;
        prop_assert!(unread <= ENTRIES);
    }

    #[test]
    fn a_lying_kernel_gives_no_frame_twice(steps in steps()) {
        let mut run = Exchange::new(true, false);
        steps.into_iter().for_each(|s| run.step(s));
    }

    #[test]
    fn a_lying_application_gives_no_frame_twice(steps in steps()) {
        let mut run = Exchange::new(false, true);
        steps.into_iter().for_each(|s| run.step(s));
        run.settle();
        let counts = run.world.owner_counts();
        prop_assert_eq!((counts.p4vm, counts.kernel_transmit), (0, 0), "{:?}", counts);
    }

    #[test]
    fn a_lying_kernel_and_application_break_nothing(steps in steps()) {
        let mut run = Exchange::new(false, false);
        steps.into_iter().for_each(|s| run.step(s));
    }
}

#[test]
fn fill_slots_return_when_the_kernel_used_the_frame() {
    let mut run = Exchange::new(true, true);
    for n in 0..ENTRIES as usize {
        run.step(Step::Fill(n, None));
    }
    run.step(Step::Receive);
    assert_eq!(run.world.app_fill.room(ENTRIES), 0, "the kernel has used no frame");
    assert_eq!(run.world.owner_counts().fill, ENTRIES);
    run.step(Step::KernelFill);
    run.step(Step::Receive);
    assert_eq!(run.world.app_fill.room(ENTRIES), ENTRIES);
    assert_eq!(run.world.owner_counts().kernel_receive, ENTRIES);
}

#[test]
fn a_frame_sent_twice_is_sent_once_and_completed_twice() {
    let mut run = Exchange::new(false, true);
    run.world.transmit_verdicts.0.lock().unwrap().at_once = Some(true);
    for _ in 0..2 {
        run.step(Step::Send(0, Some((300, 60))));
    }
    run.step(Step::Transmit);
    run.step(Step::KernelSend);
    assert_eq!(run.b.kernel_sending, [0]);
    assert_eq!(run.world.app_completion.pop(), Some(300), "the refused frame, at once");
    run.step(Step::Complete(0, None));
    run.step(Step::Transmit);
    assert_eq!(run.world.app_completion.pop(), Some(300), "with the address that was sent");
    assert_eq!(run.world.frames.faults.total(), 1);
}

#[test]
fn multi_buffer_packets_are_judged_once() {
    let mut run = Exchange::new(true, true);
    let w = &mut run.world;
    for (n, options) in [(0, 1), (1, 1), (2, 0), (3, 0)] {
        assert!(w.app_transmit.push(Descriptor { address: n * 2048, len: 1000, options }));
    }
    w.app_transmit.publish();
    assert_eq!(w.transmit.process(|| 1).held, 4);
    {
        let mut script = w.transmit_verdicts.0.lock().unwrap();
        script.decide = vec![(1, false), (0, true)];
    }
    w.transmit.process(|| 2);
    let sent: Vec<_> =
        std::iter::from_fn(|| w.kernel_transmit.pop()).map(|d| (d.address, d.options)).collect();
    assert_eq!(sent, [(0, 1), (2048, 1), (4096, 0)]);
    assert_eq!(w.app_completion.pop(), Some(3 * 2048), "the dropped packet's frame");
}

#[test]
fn packets_of_too_many_buffers_are_dropped_whole() {
    let mut run = Exchange::new(true, true);
    let w = &mut run.world;
    w.transmit_verdicts.0.lock().unwrap().at_once = Some(true);
    let long = u64::from(ENTRIES) + 2;
    let mut completed = Vec::new();
    for n in 0..=long {
        // The last frame of the packet ends it; the next frame is a packet of its own.
        let options = u32::from(n + 1 < long);
        assert!(w.app_transmit.push(Descriptor { address: n * 2048, len: 1000, options }));
        w.app_transmit.publish();
        w.transmit.process(|| 1);
        completed.extend(std::iter::from_fn(|| w.app_completion.pop()));
        w.app_completion.release();
    }
    completed.sort_unstable();
    assert_eq!(completed, (0..long).map(|n| n * 2048).collect::<Vec<_>>(), "each frame came back, unsent");
    let sent: Vec<_> = std::iter::from_fn(|| w.kernel_transmit.pop()).map(|d| d.address).collect();
    assert_eq!(sent, [long * 2048], "the next packet is sent");
    let refused = w.frames.faults.application.load(std::sync::atomic::Ordering::Relaxed);
    assert!(refused > 0, "the fault is counted");
}

#[test]
fn frames_of_a_closed_socket_return_to_the_application() {
    let mut run = Exchange::new(true, true);
    for step in [Step::Fill(0, None), Step::Fill(0, None), Step::Receive, Step::KernelFill] {
        run.step(step);
    }
    for step in [Step::KernelReceive(0, None), Step::Send(0, None), Step::Receive, Step::Transmit] {
        run.step(step);
    }
    assert_eq!(run.world.owner_counts().p4vm, 2);
    let World { mut receive, mut transmit, frames, .. } = run.world;
    assert!(receive.remove(1) && transmit.remove(1));
    drop((receive, transmit));
    assert_eq!(frames.ledger.owner_counts(&frames.registry.view()).application, FRAMES);
}
