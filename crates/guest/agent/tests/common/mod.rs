//! What the integration tests share: packet sockets, and a small cloud with a P4 VM played by a thread.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod middle;
pub(crate) mod packet;
pub(crate) mod world;

/// Whether the tests may make network namespaces; says why not.
pub(crate) fn usable() -> bool {
    #[expect(clippy::print_stdout, reason = "how a test says that it was skipped")]
    p4shield_testbed::usable().inspect_err(|why| println!("skipped: {why}")).is_ok()
}
