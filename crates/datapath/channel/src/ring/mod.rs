//! The two ends of a channel.
//!
//! Two single-producer single-consumer rings share their slots: request `i`, its answer and its frame
//! are in slot `i % slots`, answers come in the order of the requests, and an end needs only one
//! index of the other. Indexes are free-running `u32`s; distances are taken modulo 2^32, and a
//! distance larger than the window is a fault of the peer.
//!
//! [`Requester`] is the mediator's end, [`Responder`] the P4 VM's.

mod layout;
mod requester;
mod responder;
mod wakeup;

pub use layout::create_channel;
pub(crate) use layout::header_words;
pub use requester::{CheckedAnswer, HeaderRewrite, Requester};
pub use responder::{BatchEntry, HeaderSource, RequestBatch, Responder, Response};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use p4shield_abi::channel::{Geometry, REQUEST_HEAD, Request, VERDICT_HEAD};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn indexes_wrap_at_the_end_of_the_number_space() {
        const START: u32 = u32::MAX - 20;
        let geometry = Geometry { slots: 8, ..Geometry::default() };
        let memory = create_channel("test", geometry).expect("memory");
        memory.store_u32(REQUEST_HEAD, START, Relaxed);
        memory.store_u32(VERDICT_HEAD, START, Relaxed);
        let responder = Responder::new(memory.map_again().expect("memory"), geometry).expect("valid");
        let requester = Requester::new(memory, geometry).expect("valid");
        let (mut responder, mut requester) = (responder.started_at(START), requester.started_at(START));
        let (mut pushed, mut taken) = (0, 0);
        while taken < 100 {
            while requester.push(&Request { id: pushed, ..Request::default() }, &[1; 60]).is_ok() {
                pushed += 1;
            }
            let _ = requester.publish();
            let count = responder.fetch_with(3, |_, _| ()).expect("honest");
            for _ in 0..count {
                responder.respond(Response::Pass).expect("a request is open");
            }
            let _ = responder.publish();
            let result = requester.take(32, |answer| {
                assert_eq!(answer.id, taken);
                taken += 1;
            });
            assert_eq!(result, Ok(count));
        }
    }
}
