//! Calls of functions that run in a compartment: those that a program's source marks with `@compartment`,
//! if it is compiled for that.
//!
//! A call ends the run, as a request for the traffic manager does ([`crate::division`]): the program stores
//! a message for the compartment and the values that it needs afterwards in the only value of the map
//! [`CALLS_MAP`], changes nothing in the packet, and returns `drop` with [`crate::division::request::CALL`].
//! `output_port` names the place of the call then. When the answer is there, the switch copies the message
//! back into that value, and runs the program again from [`crate::division::entry::answer`], with the packet
//! as it was.
//!
//! ```text
//!   0        4        8        16 ...                  56          length        size of the value
//!   ├────────┼────────┼────────┼───────────────────────┼───────────┼─────────────┤
//!   function   length   result   up to 5 numbers of 8    memory      kept values
//!   └──────── message ──────────────────────────────────────────────┘
//! ```
//!
//! The compartment runs a program of its own, which gets each message as its packet, calls the function, and
//! leaves the result and the memory of arguments in the packet. Numbers are little-endian, and memory has
//! the layout of C. The compartment never sees the kept values, and the answer changes nothing but result and
//! memory. Its length is that of the message.

/// Symbol of the map with message and kept values: an array with one value.
pub const CALLS_MAP: &str = "p4shield_calls";

/// Offset of a `u32`: the function, by its number in the compartment's program.
pub const FUNCTION: usize = 0;
/// Offset of a `u32`: the length of the message in bytes, a multiple of eight.
pub const LENGTH: usize = 4;
/// Offset of the result, a `u64`; answers begin here.
pub const RESULT: usize = 8;
/// Offset of the arguments that are numbers, each a `u64` in the place of the argument.
pub const NUMBERS: usize = 16;
/// Offset of the memory of the other arguments.
pub const MEMORY: usize = 56;

/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 1024;

/// Returns the message at the start of the value of [`CALLS_MAP`]; `None` if its length is impossible.
#[must_use]
#[inline]
pub fn message(value: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(*value.get(LENGTH..)?.first_chunk()?) as usize;
    let is_possible = (MEMORY..=MAX_MESSAGE).contains(&length) && length.is_multiple_of(8);
    value.get(..length).filter(|_| is_possible)
}

/// Copies result and memory of an answer into the value whose message it answers. Returns false, and changes
/// nothing, if it has another length than the message or is for another function.
#[inline]
pub fn take_answer(value: &mut [u8], answer: &[u8]) -> bool {
    let is_answer =
        message(value).is_some_and(|m| m.len() == answer.len() && m[..RESULT] == answer[..RESULT]);
    if is_answer && let Some(place) = value.get_mut(RESULT..answer.len()) {
        place.copy_from_slice(&answer[RESULT..]);
    }
    is_answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// A value with a message of this length.
    fn value(length: u32, size: usize) -> Vec<u8> {
        let mut value = vec![7; size];
        value[LENGTH..RESULT].copy_from_slice(&length.to_le_bytes());
        value
    }

    #[test]
    fn a_message_has_a_possible_length() {
        assert_eq!(message(&value(64, 100)).map(<[u8]>::len), Some(64));
        for (length, size) in [(48, 100), (60, 100), (104, 100), (1032, 2000), (u32::MAX, 100)] {
            assert_eq!(message(&value(length, size)), None, "{length} of {size}");
        }
        assert_eq!(message(&[0; 6]), None);
    }

    #[test]
    fn an_answer_changes_result_and_memory_only() {
        let mut changed = value(64, 100);
        let mut answer = changed[..64].to_vec();
        answer[RESULT..].fill(9);
        assert!(take_answer(&mut changed, &answer));
        let before = value(64, 100);
        assert_eq!((&changed[..RESULT], &changed[64..]), (&before[..RESULT], &before[64..]));
        assert!(changed[RESULT..64].iter().all(|b| *b == 9));
    }

    #[test]
    fn an_answer_to_something_else_changes_nothing() {
        let before = value(64, 100);
        let mut other = before[..64].to_vec();
        other[FUNCTION] = 1;
        for answer in [&before[..56], &before[..72], &other, &[]] {
            let mut value = before.clone();
            assert!(!take_answer(&mut value, answer));
            assert_eq!(value, before);
        }
    }
}
