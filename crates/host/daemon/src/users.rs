//! The users of P4 VMs and of tenants' switches.

use crate::config::Config;
use p4shield_compartment::first_of;

/// First user ID for P4 VMs, far from the ranges that distributions and container engines assign.
const FIRST_UID: u32 = 0x7000_0000;

/// Returns the first user of P4 VMs: that of the configuration, or the one that the daemon chooses. The users
/// of tenants' switches come behind theirs.
pub(crate) fn first_user(config: &Config) -> u32 {
    config.daemon.first_uid.unwrap_or_else(|| first_of(FIRST_UID, 65536))
}
