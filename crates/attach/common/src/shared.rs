//! The state that the switch's threads and the control thread share, behind one lock.

use crate::lane::LaneOwner;
use crate::message::LaneId;
use crate::process;
use crate::registry::Registry;
use p4shield_channel::Doorbell;
use p4shield_config::{Config, Tunnel};
use p4shield_mediator as mediator;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Endpoints of tunnels that the switch terminates, and the watch that learns of changes.
#[derive(Default)]
pub(crate) struct Tunnels {
    pub(crate) end_points: Vec<Tunnel>,
    pub(crate) watch: Option<Box<TunnelWatch>>,
}

/// Receives the tunnels' endpoints and the tenants of the host.
type TunnelWatch = dyn Fn(&[Tunnel], &mediator::Config) + Send;

impl Tunnels {
    /// Calls the watch, if there is one.
    pub(crate) fn report(&self, tenants: &mediator::Config) {
        if let Some(watch) = &self.watch {
            watch(&self.end_points, tenants);
        }
    }
}

/// The state that the switch's threads and the control thread share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) ending: AtomicBool,
    /// Endpoints of tunnels that the switch terminates: at first those of the configuration.
    pub(crate) tunnels: Mutex<Tunnels>,
    /// Wakes the control thread.
    pub(crate) bell: Doorbell,
}

impl Shared {
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the registry and wakes the control thread, which reports the change. Does nothing in
    /// a forked child: a thread that the child does not have may hold the lock.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut Registry) -> R) -> Option<R> {
        if process::is_forked() {
            return None;
        }
        let result = f(&mut self.registry());
        self.bell.ring();
        Some(result)
    }

    pub(crate) fn tunnels(&self) -> MutexGuard<'_, Tunnels> {
        self.tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets all endpoints of tunnels that the switch terminates.
    pub(crate) fn set_tunnels(&self, end_points: &[Tunnel]) {
        self.tunnels().end_points = end_points.into();
        self.report_tunnels();
    }

    /// Reports endpoints and tenants to the watch.
    pub(crate) fn report_tunnels(&self) {
        let tenants = self.registry().tenants();
        self.tunnels().report(&tenants);
    }
}

impl LaneOwner for Shared {
    fn lane_down(&self, lane: LaneId) {
        self.change(|r| r.lane_down(lane));
    }
}
