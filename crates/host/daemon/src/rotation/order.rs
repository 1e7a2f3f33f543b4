//! `p4shield key rotate`: finds the key file and has the tenant's supervisor rotate it.

use crate::lifecycle::state::DaemonState;
use crate::rotation::{KeyOrder, KeyRotation};
use crate::supervisor::RotationOrder;
use p4shield_seal::TenantKey;
use p4shield_text::chain;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest window of a rotation, as of `key_window`.
const LONGEST: Duration = Duration::from_secs(86_400);

impl DaemonState {
    /// Rotates a key.
    ///
    /// # Errors
    /// There is no such key, a rotation goes on, or a file is refused. Nothing has changed.
    pub(crate) fn rotate_key(&self, order: &KeyOrder) -> Result<KeyRotation, String> {
        let _no_reload_meanwhile = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.running();
        let found = running.config.tenant(&order.tenant);
        let (number, tenant) = found.ok_or_else(|| format!("there is no tenant {:?}", order.tenant))?;
        let path = key_file(tenant, order.vm.as_deref())?.to_owned();
        let window = order.window_ms.map_or(tenant.key_window, Duration::from_millis);
        if window > LONGEST {
            return Err(format!("a window of {window:?} is too long; the longest is {LONGEST:?}"));
        }
        let new = order.new_key.as_deref().map(TenantKey::load).transpose().map_err(|e| chain(&e))?;
        let supervisor = running.supervisor(number).map(Arc::clone).ok_or("the daemon is stopping")?;
        supervisor.rotate(RotationOrder { path, new, window })
    }
}

/// Returns the file of a tenant's or VM's own key.
fn key_file<'a>(tenant: &'a crate::config::Tenant, vm: Option<&str>) -> Result<&'a Path, String> {
    let name = &tenant.name;
    let Some(vm) = vm else {
        return tenant.key_file.as_deref().ok_or_else(|| {
            let own: Vec<_> =
                tenant.key_files().filter_map(|(_, vm)| vm).map(|vm| format!("{name}/{vm}")).collect();
            match own.as_slice() {
                [] => format!("tenant {name:?} has no key; write key_file for it"),
                own => format!("only VMs of tenant {name:?} have keys: rotate {}", own.join(", ")),
            }
        });
    };
    let found = tenant.numbered_vms().find(|(_, v)| v.name == vm);
    let (_, found) = found.ok_or_else(|| format!("tenant {name:?} has no VM {vm:?}"))?;
    found.key_file.as_deref().ok_or_else(|| {
        format!(
            "VM {vm:?} has no key of its own: rotate its tenant's with `p4shield key rotate {name}`, or \
             write key_file for the VM and run `p4shield reload`"
        )
    })
}
