//! The end points at present: what the daemon says, read by threads that poll.

use super::Tunnels;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// What is known of a switch's tunnels. Changed by one thread, looked at by many.
#[derive(Debug, Default)]
pub struct Current {
    /// How often it was changed; after each change.
    changes: AtomicU64,
    tunnels: Mutex<Arc<Tunnels>>,
}

/// What one thread has seen of it.
#[derive(Debug, Default)]
pub struct Seen {
    changes: u64,
    tunnels: Arc<Tunnels>,
}

impl Current {
    /// Others take the place of those there were.
    pub(crate) fn set(&self, tunnels: Tunnels) {
        let mut current = self.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
        if **current != tunnels {
            *current = Arc::new(tunnels);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Seen {
    /// The end points: one load if nothing changed. While they are being changed it is those of before.
    #[inline]
    pub fn of(&mut self, current: &Current) -> &Tunnels {
        if current.changes.load(Ordering::Acquire) != self.changes {
            self.refresh(current);
        }
        &self.tunnels
    }

    #[cold]
    fn refresh(&mut self, current: &Current) {
        let tunnels = match current.tunnels.try_lock() {
            Ok(tunnels) => tunnels,
            Err(TryLockError::Poisoned(tunnels)) => tunnels.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Under the lock, so that it belongs to what is there.
        self.changes = current.changes.load(Ordering::Acquire);
        self.tunnels = Arc::clone(&tunnels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_config::{Tunnel, TunnelKind};

    #[test]
    fn a_change_is_seen_at_the_next_look() {
        let (current, mut seen) = (Current::default(), Seen::default());
        assert!(seen.of(&current).is_empty());
        let tunnels = Tunnels::new(
            &[Tunnel { kind: TunnelKind::Vxlan, address: None, port: 4789 }],
            &p4shield_mediator::Config::default(),
        );
        for _ in 0..2 {
            current.set(tunnels.clone());
            assert_eq!(*seen.of(&current), tunnels);
            assert_eq!(seen.changes, 1, "the same again is no change");
        }
        let locked = current.tunnels.lock().unwrap();
        current.changes.fetch_add(1, Ordering::Release);
        assert_eq!(*seen.of(&current), tunnels, "nobody waits for who changes it");
        drop(locked);
    }
}
