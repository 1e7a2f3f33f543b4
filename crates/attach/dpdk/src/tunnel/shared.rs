//! The endpoints at present: the control thread stores them, polling threads read them.

use super::Tunnels;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// A switch's tunnels. One thread changes them, many read them.
#[derive(Debug, Default)]
pub(crate) struct SharedTunnels {
    /// How often they were changed; counted after each change.
    changes: AtomicU64,
    tunnels: Mutex<Arc<Tunnels>>,
}

/// The tunnels that one thread has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    changes: u64,
    tunnels: Arc<Tunnels>,
}

impl SharedTunnels {
    /// Replaces the tunnels.
    pub(crate) fn set(&self, tunnels: Tunnels) {
        let mut current = self.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
        if **current != tunnels {
            *current = Arc::new(tunnels);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Seen {
    /// Returns the tunnels: one load if nothing changed. While another thread changes them, the
    /// previous ones.
    #[inline]
    pub(crate) fn of(&mut self, current: &SharedTunnels) -> &Tunnels {
        if current.changes.load(Ordering::Acquire) != self.changes {
            self.refresh(current);
        }
        &self.tunnels
    }

    #[cold]
    fn refresh(&mut self, current: &SharedTunnels) {
        let tunnels = match current.tunnels.try_lock() {
            Ok(tunnels) => tunnels,
            Err(TryLockError::Poisoned(tunnels)) => tunnels.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Under the lock, so that it belongs to these tunnels.
        self.changes = current.changes.load(Ordering::Acquire);
        self.tunnels = Arc::clone(&tunnels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_config::{Tunnel, TunnelKind};

    #[test]
    fn a_change_is_seen_at_the_next_read() {
        let (current, mut seen) = (SharedTunnels::default(), Seen::default());
        assert!(seen.of(&current).is_empty());
        let tunnels = Tunnels::new(
            &[Tunnel { kind: TunnelKind::Vxlan, address: None, port: 4789 }],
            None,
            &p4shield_mediator::Config::default(),
        );
        for _ in 0..2 {
            current.set(tunnels.clone());
            assert_eq!(*seen.of(&current), tunnels);
            assert_eq!(seen.changes, 1, "the same again is no change");
        }
        let locked = current.tunnels.lock().unwrap();
        current.changes.fetch_add(1, Ordering::Release);
        assert_eq!(*seen.of(&current), tunnels, "a reader never waits for a writer");
        drop(locked);
    }
}
