//! What the endpoints are made of: the daemon says where tunnels end, the kernel which addresses the
//! host has.

use super::{Origin, Seen, SharedTunnels, Tunnels, local};
use p4shield_attach::Session;
use p4shield_config::Tunnel;
use p4shield_mediator::{self as mediator, AllowedSources, RewriteCheck};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// What is known at present.
#[derive(Debug, Default)]
struct Sources {
    end_points: Vec<Tunnel>,
    tenants: mediator::Config,
    local: Option<Box<[IpAddr]>>,
}

/// Keeps `current` up to date with a session and with the host's addresses. Both are read before it returns.
pub(crate) fn follow(session: &Session, current: &Arc<SharedTunnels>) {
    let sources: Arc<Mutex<Sources>> = Arc::default();
    let change = |current: &Arc<SharedTunnels>| {
        let (sources, current) = (Arc::clone(&sources), Arc::clone(current));
        move |change: &dyn Fn(&mut Sources)| {
            let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut sources);
            let Sources { end_points, tenants, local } = &*sources;
            current.set(Tunnels::new(end_points, local.clone(), tenants));
        }
    };
    let of_host = change(current);
    local::watch(move |addresses| of_host(&|sources| sources.local.clone_from(&addresses)));
    let of_session = change(current);
    session.watch_tunnels(move |end_points, tenants| {
        of_session(&|sources| {
            sources.end_points = end_points.to_vec();
            sources.tenants = tenants.clone();
        });
    });
}

impl SharedTunnels {
    /// Returns a lane's check of what egress programs make of their packets: not for an endpoint.
    pub(crate) fn rewrite_check(self: Arc<Self>) -> RewriteCheck {
        let seen = RefCell::new(Seen::default());
        Box::new(move |port, frame| {
            let is_vms = matches!(port.source, AllowedSources::Only(_));
            let from = if is_vms { Origin::Vm } else { Origin::Shared };
            seen.borrow_mut().of(&self).allows(frame, from)
        })
    }
}
