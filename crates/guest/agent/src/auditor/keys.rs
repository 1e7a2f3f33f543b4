//! The auditor's keys: the file that may be replaced, and the rotation that follows.

use p4shield_seal::{KeyFile, LogKey};

use super::interface_watch::InterfaceWatch;
use super::log::LogPage;
use crate::audit::Audit;
use crate::audit::finding::Notice;
use crate::config::VmConfig;

/// Time from the first record under a new key until packets are digested with the new key only: packets in
/// flight then are compared by both.
const BOTH_KEYS_NS: u64 = 10_000_000_000;

/// Follows the key file.
pub(super) struct KeyFollower {
    vm: VmConfig,
    file: KeyFile,
    window_ns: u64,
    /// When the old key's digests end.
    finish_at: Option<u64>,
}

impl KeyFollower {
    pub(super) const fn new(vm: VmConfig, file: KeyFile, window_ns: u64) -> Self {
        Self { vm, file, window_ns, finish_at: None }
    }

    /// Reads the key file if it was replaced, and ends a rotation that is complete.
    pub(super) fn step(
        &mut self,
        mono_ns: u64,
        log: &mut LogPage,
        interface: &mut InterfaceWatch,
        audit: &mut Audit,
    ) {
        match self.file.changed() {
            Ok(Some(key)) => {
                let key = LogKey::new(&key, &self.vm.identity());
                tracing::info!(event = "key_followed", key = %key.id(), "the key file has a new key");
                self.finish(interface);
                interface.rotate(key.digest().clone());
                log.rotate(key, mono_ns.saturating_add(self.window_ns), self.window_ns);
                audit.noticed(Notice::NewKey);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                 event = "key_refused",
                 %error,
                 "the new key file is refused; the audit keeps its key"
                )
            }
        }
        if log.take_rekeyed() {
            self.finish_at = Some(mono_ns.saturating_add(BOTH_KEYS_NS));
        }
        if self.finish_at.is_some_and(|at| mono_ns >= at) {
            self.finish(interface);
        }
    }

    fn finish(&mut self, interface: &mut InterfaceWatch) {
        if self.finish_at.take().is_some() {
            interface.finish_rotation();
        }
    }
}
