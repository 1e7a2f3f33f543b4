//! The tap's history, mapped read-only: reading 65 536 entries needs no system call.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle};
use p4shield_abi::Direction;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::TapError;
use super::maps::KEYS;
use crate::audit::history::HISTORY;

/// Size of one history in bytes.
const SIZE: usize = HISTORY * 8;

const HISTORIES: usize = 2 * KEYS;

/// The histories by direction and key, which the kernel writes.
pub(super) struct Ring {
    base: NonNull<c_void>,
}

// SAFETY: this value owns the mapping, which never moves and is only read, atomically.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn map(map: &MapHandle) -> Result<Self, TapError> {
        if map.value_size() as usize != SIZE || map.max_entries() as usize != HISTORIES {
            return Err(TapError::Map("histories"));
        }
        // SAFETY: a new mapping at an address that the kernel selects aliases no other memory.
        let base = unsafe {
            mmap(std::ptr::null_mut(), HISTORIES * SIZE, ProtFlags::READ, MapFlags::SHARED, map.as_fd(), 0)
        };
        let base = base.map_err(|e| TapError::History(e.into()))?;
        NonNull::new(base).map(|base| Self { base }).ok_or(TapError::Map("histories"))
    }

    /// Returns entry `i` modulo [`HISTORY`] of the history of a direction and key `key` modulo [`KEYS`].
    pub(super) fn load(&self, direction: Direction, key: usize, i: usize) -> u64 {
        let at = (direction as usize * KEYS + key % KEYS) * HISTORY + i % HISTORY;
        // SAFETY: `at` is below HISTORIES * HISTORY, so the word is inside the mapping, which is page-aligned
        // and lives as long as `self`. The kernel writes whole words only.
        let word = unsafe { self.base.cast::<AtomicU64>().add(at).as_ref() };
        word.load(Ordering::Relaxed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping with this length, and no references into it remain.
        let unmapped = unsafe { munmap(self.base.as_ptr(), HISTORIES * SIZE) };
        debug_assert!(unmapped.is_ok());
    }
}
