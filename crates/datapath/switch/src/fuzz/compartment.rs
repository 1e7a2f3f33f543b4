//! A compartment in memory, which answers when the life says so, and as it says.

use super::draw::Draw;
use crate::calls::{CallFail, CallPort, CallSettings, Submitted};
use p4shield_abi::call::RESULT;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Messages that have room.
const ROOM: usize = 700;

#[derive(Debug, Default)]
struct Far {
    /// Messages that are not answered.
    messages: VecDeque<Vec<u8>>,
    /// Answers that are ready.
    ready: VecDeque<Option<Vec<u8>>>,
    is_dead: bool,
}

/// The compartment of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Compartment(Arc<Mutex<Far>>);

impl Compartment {
    /// Returns the way to it, with a deadline of less than a millisecond: a replacement waits for that.
    pub(super) fn settings(&self, draw: &mut Draw<'_>) -> CallSettings {
        let fail = if draw.flag() { CallFail::Zero } else { CallFail::Drop };
        let deadline = Duration::from_micros(draw.byte().into());
        CallSettings { port: Box::new(self.clone()), deadline, fail }
    }

    /// Answers some messages, honestly or not, or dies.
    pub(super) fn act(&self, draw: &mut Draw<'_>) {
        let mut far = self.far();
        far.is_dead |= draw.below(32) == 31;
        for _ in 0..draw.byte() {
            let Some(mut answer) = far.messages.pop_front() else { return };
            let answer = match draw.below(8) {
                0 => None,
                1 => Some(draw.take(100).to_vec()),
                2 => {
                    answer.truncate(draw.byte().into());
                    Some(answer)
                }
                _ => {
                    answer[RESULT] = draw.byte();
                    Some(answer)
                }
            };
            far.ready.push_back(answer);
        }
    }

    fn far(&self) -> MutexGuard<'_, Far> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallPort for Compartment {
    fn submit(&mut self, message: &[u8]) -> Submitted {
        let mut far = self.far();
        if far.is_dead {
            return Submitted::Dead;
        }
        if far.messages.len() >= ROOM {
            return Submitted::Full;
        }
        far.messages.push_back(message.to_vec());
        Submitted::Taken
    }

    fn publish(&mut self) {}

    fn take(&mut self, each: &mut dyn FnMut(Option<&[u8]>)) -> bool {
        let mut far = self.far();
        far.ready.drain(..).for_each(|answer| each(answer.as_deref()));
        !far.is_dead
    }
}
