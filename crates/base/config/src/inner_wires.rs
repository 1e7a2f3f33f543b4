//! The wires of the tenants' switches: between each VM whose packets programs judge and its port, at any
//! level. P4 Shield makes their interfaces with the switches.

use super::check::Checker;
use super::{Attachment, UnownedPolicy, VmRef, Wire, file};
use std::collections::HashMap;

/// Begins the names of the interfaces, before eight hexadecimal digits. No name of the host may begin so.
pub(super) const PREFIX: &str = "p4sw";
/// The offset and the prime of the hash FNV-1a with 32 bits (RFC 9923).
const FNV: [u32; 2] = [0x811c_9dc5, 0x0100_0193];

impl Checker<'_> {
    /// Returns the wires that the file does not write. The wires that it writes keep their VMs.
    pub(super) fn inner_wires(
        &mut self,
        file: &file::File,
        attachment: Attachment,
        wires: &[Wire],
    ) -> Vec<Wire> {
        if file.topology.is_none() || attachment != Attachment::Wire {
            return Vec::new();
        }
        let mut made = Vec::new();
        let mut seen = HashMap::new();
        for (number, tenant) in (0..).zip(&file.tenant) {
            for (vm_number, vm) in (0..).zip(&tenant.vm) {
                let of = VmRef { tenant: number, vm: vm_number };
                let Some(interface) = vm.interface.as_ref().filter(|_| is_judged(tenant, vm)) else {
                    continue;
                };
                if wires.iter().any(|wire| wire.vm == of) {
                    continue;
                }
                let port = name_of(interface.as_ref());
                if let Some(other) = seen.insert(port.clone(), interface.as_ref()) {
                    let message = format!(
                        "interface: P4 Shield would give the wires of {:?} and {other:?} one name, {port}; \
                         write another name for one of the two",
                        interface.as_ref()
                    );
                    self.problem(interface.span(), message);
                }
                made.push(Wire {
                    vm_interface: interface.as_ref().clone(),
                    switch_interface: format!("{port}i"),
                    port: Some(port),
                    vm: of,
                    others: UnownedPolicy::Pass,
                    own_addresses_only: false,
                });
            }
        }
        made
    }
}

/// Returns whether a program may judge the VM's packets: one is configured, or can be loaded later, or the
/// tenant says what happens without.
pub(super) fn is_judged(tenant: &file::Tenant, vm: &file::Vm) -> bool {
    let has_program = !vm.ingress.is_empty() || !vm.egress.is_empty() || vm.bundle.is_some();
    let may_have = tenant.bundle_key.is_some() || tenant.socket.is_some();
    let has_pages = vm.info_page.is_some() || vm.log_page.is_some() || vm.handshake_page.is_some();
    has_program || may_have || has_pages || tenant.no_program.is_some()
}

/// Returns the name of a port, which a VM's interface has at each level and in each order of the file.
fn name_of(interface: &str) -> String {
    let [offset, prime] = FNV;
    let hash = interface.bytes().fold(offset, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(prime));
    format!("{PREFIX}{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_hashs_published_vectors() {
        assert_eq!(name_of(""), "p4sw811c9dc5");
        assert_eq!(name_of("a"), "p4swe40c292c");
        assert_eq!(name_of("foobar"), "p4swbf9cf968");
    }
}
