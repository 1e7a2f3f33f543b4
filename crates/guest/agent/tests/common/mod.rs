//! Shared code of the integration tests: packet sockets, and a small cloud with a simulated P4 VM.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod middle;
pub(crate) mod packet;
pub(crate) mod world;

/// Returns whether the tests may create network namespaces, and prints the reason if not.
pub(crate) fn usable() -> bool {
    p4shield_testbed::usable().inspect_err(|why| p4shield_need::skip("machine", why)).is_ok()
}
