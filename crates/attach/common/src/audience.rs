//! What the server sends each switch first: the setup, to those that connect and, when it changes, to those
//! that are connected.

use crate::message::{DaemonMessage, VERSION};
use crate::peer::{Allowed, Peer};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A setup in memory, with its length.
type SetupMemory = Arc<(OwnedFd, u32)>;

/// The connected switches, the setup that they know, and who may connect.
pub(crate) struct Audience(Mutex<State>);

struct State {
    setup: SetupMemory,
    allowed: Allowed,
    peers: Vec<Weak<Peer>>,
}

impl Audience {
    pub(crate) fn new(setup: (OwnedFd, u32), allowed: Allowed) -> Self {
        Self(Mutex::new(State { setup: Arc::new(setup), allowed, peers: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a switch the setup, and changes from now on. The lock makes sure that it gets the newest.
    pub(crate) fn admit(&self, peer: &Arc<Peer>) {
        let mut state = self.lock();
        send(peer, &state.setup);
        state.peers.retain(|peer| peer.strong_count() != 0);
        state.peers.push(Arc::downgrade(peer));
    }

    /// Replaces the setup and sends it to all connected switches. Returns when each has it in its socket,
    /// so that whatever is sent later may refer to it.
    pub(crate) fn change_setup(&self, setup: (OwnedFd, u32)) {
        let setup = Arc::new(setup);
        let peers = {
            let mut state = self.lock();
            state.setup = Arc::clone(&setup);
            state.connected()
        };
        // Without the lock: a switch that does not read delays no greeting.
        peers.iter().for_each(|peer| send(peer, &setup));
    }

    /// Replaces who may connect. Closes the connections of those that no longer may.
    pub(crate) fn change_allowed(&self, allowed: Allowed) {
        let mut state = self.lock();
        for peer in state.connected().iter().filter(|peer| !allowed.admits(peer.uid, peer.gid)) {
            peer.refuse("its user is no longer in daemon.switch_uids or daemon.switch_gids");
        }
        state.allowed = allowed;
    }

    /// Returns whether a user and group may connect.
    pub(crate) fn admits(&self, uid: u32, gid: u32) -> bool {
        self.lock().allowed.admits(uid, gid)
    }
}

impl State {
    fn connected(&self) -> Vec<Arc<Peer>> {
        self.peers.iter().filter_map(Weak::upgrade).collect()
    }
}

fn send(peer: &Peer, setup: &SetupMemory) {
    peer.send(&DaemonMessage::Setup { version: VERSION, len: setup.1 }, &[setup.0.as_fd()]);
}
