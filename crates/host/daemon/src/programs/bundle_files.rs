//! What `p4shield run --check` says of bundles and their keys. The P4 VM verifies them again, for itself.

use crate::config::{Config, Tenant};
use crate::programs::read_objects;
use p4shield_bundle::{Bundle, PublicKey};
use p4shield_text::chain;
use std::path::{Path, PathBuf};

/// Returns the files that a P4 VM would refuse, with the reasons.
pub(crate) fn check(config: &Config) -> Vec<(PathBuf, String)> {
    let mut problems = Vec::new();
    for tenant in &config.tenants {
        let Some(path) = &tenant.bundle_key else { continue };
        match read_key(path) {
            Ok(key) => problems.extend(of_tenant(tenant, &key)),
            Err(why) => problems.push((path.clone(), format!("bundle_key: {why}"))),
        }
    }
    problems
}

/// Reads the key that a tenant pins.
pub(crate) fn read_key(path: &Path) -> Result<PublicKey, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    text.parse().map_err(|e| format!("{}: {e}", path.display()))
}

fn of_tenant(tenant: &Tenant, key: &PublicKey) -> Vec<(PathBuf, String)> {
    let mut problems = Vec::new();
    for vm in &tenant.vms {
        let [files, _] = &vm.programs;
        let Some(path) = files.first() else { continue };
        let refused = read_objects(files).and_then(|bytes| {
            let bundle = Bundle::open(&bytes.concat(), key).map_err(|e| chain(&e))?;
            bundle.check_owner(&tenant.name, &vm.name).map_err(|e| chain(&e))
        });
        if let Err(why) = refused {
            problems.push((path.clone(), format!("bundle: {why}")));
        }
    }
    problems
}
