//! P4 VMs that are processes, stopped and killed under traffic.

use crate::common::*;
use p4shield_channel::Response;
use p4shield_mediator::{Disposition, Mediator, P4VmFault, Reason};
use std::sync::{Mutex, PoisonError};

/// Serialises the tests: a child inherits all descriptors, also those of another test's doorbells,
/// which would then not appear closed.
static SERIAL: Mutex<()> = Mutex::new(());

/// A child process that passes all packets. Killed and reaped when dropped.
struct Child(libc::pid_t);

/// Forks a child that answers over `p4vm`'s ends until it is killed.
fn spawn(mut p4vm: P4vm) -> Child {
    // SAFETY: the child runs a loop that neither allocates nor takes locks, and ends by a signal only.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        loop {
            for _ in 0..p4vm.responder.fetch(&mut p4vm.batch).unwrap_or(0) {
                let _ = p4vm.responder.respond(Response::Pass);
            }
            let _ = p4vm.responder.publish();
            std::thread::yield_now();
        }
    }
    Child(pid)
}

impl Child {
    fn signal(&self, signal: i32) {
        // SAFETY: the process is this test's child and not reaped yet.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    /// Waits until the child is stopped or has ended.
    fn wait(&self) {
        let mut status = 0;
        // SAFETY: `status` is valid, and the child is ours.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, libc::WUNTRACED) }, self.0);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: only this value reaps the child; if it has ended already, both calls fail harmlessly.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Polls, at one time, until `count` packets have come out.
fn wait_for(mediator: &mut Mediator<TestPacket>, now: u64, count: usize) -> Vec<(u32, Disposition)> {
    let mut out = Vec::new();
    while out.len() < count {
        out.extend(poll(mediator, now));
        std::thread::yield_now();
    }
    out
}

/// One packet of each tenant.
fn submit_both(mediator: &mut Mediator<TestPacket>, now: u64, serial: u32) {
    assert_eq!(released(mediator.submit(now, &SHARED, packet(serial, 1, 99))), None);
    assert_eq!(released(mediator.submit(now, &SHARED, packet(100 + serial, 11, 99))), None);
}

#[test]
fn a_stopped_process_costs_its_own_tenant_only() {
    let _turn = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut m = mediator(&tenants(2));
    let (a, b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    let (a, _b) = (spawn(a), spawn(b));
    submit_both(&mut m, 0, 1);
    assert_eq!(wait_for(&mut m, 0, 2).len(), 2);
    a.signal(libc::SIGSTOP);
    a.wait();
    submit_both(&mut m, 1, 2);
    assert_eq!(wait_for(&mut m, 1, 1), [(102, Disposition::Pass)], "the other tenant's packet is judged");
    assert_eq!(poll(&mut m, DEADLINE), []);
    assert_eq!(
        poll(&mut m, 1 + DEADLINE),
        [(2, Disposition::Drop(Reason::Deadline))],
        "the stopped tenant's packet"
    );
    a.signal(libc::SIGCONT);
    submit_both(&mut m, 2 + DEADLINE, 3);
    let mut out = wait_for(&mut m, 2 + DEADLINE, 2);
    out.sort_unstable_by_key(|(serial, _)| *serial);
    assert_eq!(out, [(3, Disposition::Pass), (103, Disposition::Pass)]);
    assert_eq!(m.counters().tenants[0].late.get(), 1);
    assert_eq!(m.held(), 0);
}

#[test]
fn a_killed_process_is_replaced_under_traffic() {
    let _turn = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut m = mediator(&tenants(2));
    let (a, b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    let (a, _b) = (spawn(a), spawn(b));
    submit_both(&mut m, 0, 1);
    assert_eq!(wait_for(&mut m, 0, 2).len(), 2);
    a.signal(libc::SIGKILL);
    a.wait();
    submit_both(&mut m, 1, 2);
    assert_eq!(wait_for(&mut m, 1, 1), [(102, Disposition::Pass)], "the other tenant's packet is judged");
    m.drain_doorbell(0);
    assert_eq!(m.fault(0), Some(P4VmFault::Gone), "its end of the doorbell is closed");
    assert_eq!(poll(&mut m, 1), [(2, Disposition::Drop(Reason::Fault))], "before the deadline");
    let _a = spawn(attach(&mut m, 2, 0, GEOMETRY));
    submit_both(&mut m, 2, 3);
    let mut out = wait_for(&mut m, 2, 2);
    out.sort_unstable_by_key(|(serial, _)| *serial);
    assert_eq!(out, [(3, Disposition::Pass), (103, Disposition::Pass)]);
}
