//! A P4 VM that is a thread with a closure for a program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use p4shield_abi::channel::{Geometry, Request};
use p4shield_attach_wire::WireLoop;
use p4shield_channel::{
    Doorbell, RequestBatch, Requester, Responder, Response, WaitPolicy, Waiter, create_channel,
};
use p4shield_mediator::P4VmChannel;
use rustix::event::{PollFd, PollFlags};

/// The program's verdict.
pub enum Answer {
    Drop,
    Pass,
    /// Pass with this header in place of the submitted one.
    Rewrite(Vec<u8>),
}

pub struct P4Vm {
    stop: Arc<AtomicBool>,
    /// While set, it judges no packet, like a stopped process.
    pub frozen: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl P4Vm {
    /// Attaches a P4 VM to a tenant of a loop.
    pub fn attach(
        wire: &WireLoop,
        tenant: usize,
        program: impl FnMut(&Request, &[u8]) -> Answer + Send + 'static,
    ) -> Self {
        let geometry = Geometry::default();
        let memory = create_channel("test", geometry).unwrap();
        let responder = Responder::new(memory.map_again().unwrap(), geometry).unwrap();
        let requester = Requester::new(memory, geometry).unwrap();
        let (ours, theirs) = Doorbell::pair().unwrap();
        let (stop, frozen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (s, f) = (Arc::clone(&stop), Arc::clone(&frozen));
        let thread = std::thread::spawn(move || run(responder, &theirs, program, &s, &f));
        wire.replace_channel(tenant, Some(P4VmChannel { requester, doorbell: ours })).unwrap();
        Self { stop, frozen, thread: Some(thread) }
    }
}

impl Drop for P4Vm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|e| e.is_ok()) || std::thread::panicking());
    }
}

fn run(
    mut responder: Responder,
    bell: &Doorbell,
    mut program: impl FnMut(&Request, &[u8]) -> Answer,
    stop: &AtomicBool,
    frozen: &AtomicBool,
) {
    let mut waiter = Waiter::new(WaitPolicy { min_spins: 8, max_spins: 256, yields: 1 });
    let mut batch = RequestBatch::new(&Geometry::default());
    let tick = std::time::Duration::from_millis(20);
    while !stop.load(Ordering::Acquire) {
        if frozen.load(Ordering::Acquire) {
            std::thread::sleep(tick);
            continue;
        }
        if responder.fetch(&mut batch).unwrap() == 0 {
            let fds = &mut [PollFd::new(bell, PollFlags::IN)];
            waiter.idle(&mut responder, fds, Some(tick)).unwrap();
            bell.drain();
            continue;
        }
        waiter.found_work();
        for entry in batch.iter_mut() {
            let header = &entry.frame[entry.start..entry.start + entry.len];
            let rest = entry.request.packet_len - header.len() as u32;
            let reply = match program(entry.request, header) {
                Answer::Drop => responder.respond(Response::Drop),
                Answer::Pass => responder.respond(Response::Pass),
                Answer::Rewrite(new) => responder
                    .respond(Response::Rewritten { header: &new, packet_len: new.len() as u32 + rest }),
            };
            reply.unwrap();
        }
        if responder.publish() {
            bell.ring();
        }
    }
}
