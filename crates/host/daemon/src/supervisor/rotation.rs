//! Rotation of a tenant's key while its P4 VM runs: by a command, or because a key file has a new key.

use super::provision::{self, ProgramHost, ProgramRequest};
use super::thread::SupervisorThread;
use super::{Command, Supervisor};
use crate::rotation::KeyRotation;
use crate::rotation::keys::{KeysToSend, NewKey};
use p4shield_compartment::is_recoverable;
use p4shield_control::{ClientError, Request, Resources};
use p4shield_seal::TenantKey;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A rotation that a command asks for.
pub(crate) struct RotationOrder {
    /// The key file.
    pub(crate) path: PathBuf,
    /// The new key; none: the supervisor makes one, or takes the file's if it was replaced.
    pub(crate) new: Option<TenantKey>,
    pub(crate) window: Duration,
}

/// What `status` shows of a VM's keys beside what its P4 VM reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyReport {
    /// End of the running window, in seconds since 1970.
    pub(crate) until: Option<u64>,
    /// The window has ended, and the agent has not used the new key.
    pub(crate) is_overdue: bool,
}

impl Supervisor {
    /// Rotates a key, and waits until the P4 VM has the new one.
    pub(crate) fn rotate(&self, order: RotationOrder) -> Result<KeyRotation, String> {
        let (answer, result) = channel();
        self.send(Command::Rotate { order: Box::new(order), answer });
        let gone = "the supervisor of this tenant's P4 VM has ended; restart the daemon";
        result.recv().unwrap_or_else(|_| Err(gone.to_owned()))
    }
}

impl SupervisorThread {
    /// Rotates the key of a file.
    pub(super) fn rotate(&mut self, order: RotationOrder) -> Result<KeyRotation, String> {
        let RotationOrder { path, new, window } = order;
        let NewKey { key, previous, until } = self.keys.rotate(&self.config.tenant, &path, new, window)?;
        let tenant = &self.config.tenant;
        let has_file = |vm: &crate::config::Vm| tenant.key_file_of(vm) == Some(&*path);
        let vms = tenant.numbered_vms().filter(|(_, vm)| has_file(vm)).map(|(_, vm)| vm.name.clone());
        let rotation = KeyRotation {
            tenant: tenant.name.clone(),
            vms: vms.collect(),
            key: key.to_string(),
            previous: previous.to_string(),
            until,
            key_file: path,
        };
        tracing::info!(
            event = "key_rotated",
            tenant = rotation.tenant,
            key = rotation.key,
            previous = rotation.previous,
            "the key in {} rotates",
            rotation.key_file.display()
        );
        self.give_keys();
        self.check();
        Ok(rotation)
    }

    /// Gives each VM whose key has changed its new one. A P4 VM that fails is replaced; the next one gets
    /// both keys.
    pub(super) fn give_keys(&mut self) {
        if let Err(e) = self.try_give_keys() {
            self.replace(&e.to_string(), Duration::ZERO);
        }
        self.keys.settle();
    }

    fn try_give_keys(&mut self) -> Result<(), ClientError> {
        for v in self.keys.due(&self.config.tenant) {
            let window = self.keys.window(&self.config.tenant, v);
            let Some(KeysToSend { current, .. }) = self.keys.of(&self.config.tenant, v) else { continue };
            let mut resources = Resources::none();
            let key = resources.add_bytes(current.expose());
            let request = Request::SetKeys { vm: v as u16, key, window_ms: provision::millis(window) };
            let request = ProgramRequest { resources: &resources, ..ProgramRequest::new(request) };
            let given = match &mut self.process {
                _ if self.config.inline => self.switches.set_keys(&self.config, request),
                Some(process) => process.request(request).map(drop),
                None => return Ok(()),
            };
            match given {
                // A VM without pages has no keys.
                Err(e) if !is_recoverable(&e) => return Err(e),
                _ => self.keys.gave(&self.config.tenant, v),
            }
        }
        Ok(())
    }

    /// Notes what the P4 VM reports of its keys.
    pub(super) fn observe_keys(&mut self, status: &p4shield_control::Status) -> Vec<KeyReport> {
        let tenant = &self.config.tenant;
        self.keys.observe(tenant, status);
        let report =
            |v| KeyReport { until: self.keys.until(tenant, v), is_overdue: self.keys.is_overdue(tenant, v) };
        (0..tenant.vms.len()).map(report).collect()
    }
}
