//! Attacks on the handshake.
//!
//! | module | attack |
//! |---|---|
//! | [`exhaustive`] | each message changed at each byte, cut, repeated, reflected, exchanged; real primitives |
//! | [`model`] | every order in which messages of restarted parties can arrive |
//! | [`schedules`] | random schedules of a host with keys and evidence of its own; each defect put back is found |

mod exhaustive;
mod model;
mod parties;
mod policies;
mod schedules;
mod world;
