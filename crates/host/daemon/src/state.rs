//! What the daemon's threads share, and how a program is replaced while the daemon runs.
//!
//! [`crate::reload`] builds on this to load all programs of a changed configuration;
//! [`crate::collect_status`] reads it.

use crate::attachment::Attachment;
use crate::config::Config;
use crate::supervisor::{LoadMode, Supervisor};
use crate::text::read_objects;
use p4shield_abi::Direction;
use std::path::PathBuf;
use std::sync::Arc;

/// Why no program can be loaded where `no_program = "skip"` applies.
const SKIPPED: &str = "the P4 VM does not judge these packets: with no_program = \"skip\" and no program \
                       at start, they \
    bypass it; name the program in the configuration and restart the daemon";

/// What the daemon's threads share.
pub(crate) struct DaemonState {
    pub(crate) config: Config,
    /// Whether P4 VMs have cgroups, or why not.
    pub(crate) cgroup: String,
    pub(crate) attachment: Arc<dyn Attachment>,
    /// By tenant.
    pub(crate) supervisors: Vec<Supervisor>,
}

impl DaemonState {
    /// Replaces a program by the one that the objects in `files` link to, or unloads it if there are none.
    pub(crate) fn load(
        &self,
        tenant: &str,
        vm: &str,
        direction: &str,
        files: &[PathBuf],
        mode: LoadMode,
    ) -> Result<String, String> {
        let (t, found) =
            self.config.tenant(tenant).ok_or_else(|| format!("there is no tenant {tenant:?}"))?;
        let v = found.vms.iter().position(|v| v.name == vm);
        let v = v.ok_or_else(|| format!("tenant {tenant:?} has no VM {vm:?}"))?;
        let direction = Direction::ALL.into_iter().find(|d| d.name() == direction);
        let direction = direction.ok_or_else(|| "a direction is ingress or egress".to_owned())?;
        if !files.is_empty() && found.skips(v, direction) {
            return Err(SKIPPED.to_owned());
        }
        let supervisor = self.supervisors.get(t).ok_or("the daemon is stopping")?;
        supervisor.load(v as u16, direction, read_objects(files)?, mode)
    }
}
