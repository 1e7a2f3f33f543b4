//! Key files that have another key than the P4 VM: they were replaced, and no reload has read them yet.

use crate::config::Tenant;
use crate::status::VmStatus;
use p4shield_seal::TenantKey;
use std::path::Path;

/// Returns the VM's key file, if it has another key than the VM's P4 VM.
pub(crate) fn replaced<'a>(tenant: &'a Tenant, vm: &VmStatus) -> Option<&'a Path> {
    let running = &vm.keys.as_ref()?.key;
    let configured = tenant.vms.iter().find(|configured| configured.name == vm.name)?;
    let path = tenant.key_file_of(configured)?;
    // A file that is refused is a problem of its own.
    let on_disk = TenantKey::load(path).ok()?;
    (on_disk.id().to_string() != *running).then_some(path)
}
