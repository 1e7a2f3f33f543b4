//! The tap's history, mapped read-only: looking back at 65 536 packets costs no system call.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle};
use p4shield_abi::Direction;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::TapError;
use crate::audit::history::HISTORY;

/// Bytes of one direction's history.
const SIZE: usize = HISTORY * 8;

/// Both directions' histories, as the kernel writes them.
pub(super) struct Ring {
    base: NonNull<c_void>,
}

// SAFETY: the mapping belongs to this value alone, is never moved, and is only read, atomically.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn map(map: &MapHandle) -> Result<Self, TapError> {
        if map.value_size() as usize != SIZE || map.max_entries() != 2 {
            return Err(TapError::Map("histories"));
        }
        // SAFETY: a fresh mapping at an address that the kernel chooses; it aliases no memory of ours.
        let base = unsafe {
            mmap(std::ptr::null_mut(), 2 * SIZE, ProtFlags::READ, MapFlags::SHARED, map.as_fd(), 0)
        };
        let base = base.map_err(|e| TapError::History(e.into()))?;
        NonNull::new(base).map(|base| Self { base }).ok_or(TapError::Map("histories"))
    }

    /// Entry `i` of a direction's history; `i` counts modulo [`HISTORY`].
    pub(super) fn load(&self, direction: Direction, i: usize) -> u64 {
        let at = direction as usize * HISTORY + i % HISTORY;
        // SAFETY: `at` is below 2 * HISTORY, so the word is inside the mapping, which is page-aligned, lives as long
        // as `self`, and is written by the kernel in whole words only.
        let word = unsafe { self.base.cast::<AtomicU64>().add(at).as_ref() };
        word.load(Ordering::Relaxed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, with its length, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr(), 2 * SIZE) };
        debug_assert!(unmapped.is_ok());
    }
}
