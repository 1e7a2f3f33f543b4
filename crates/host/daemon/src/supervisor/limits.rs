//! What a tenant's P4 VM may use of the host.

use crate::config::{Compartment, Tenant};
use p4shield_compartment::Limits;

/// Most processes and threads of a P4 VM in a process.
const PROCESSES: u32 = 16;
/// The same for a virtual machine: QEMU has a thread for each processor and a pool for its own work.
const QEMU_PROCESSES: u32 = 192;
/// What QEMU needs beside the memory of its virtual machine: its own, translated code, and its page tables.
const QEMU_MEMORY: u64 = 384 << 20;

/// Returns what the P4 VM of a tenant may use of the host.
pub(super) const fn limits(tenant: &Tenant) -> Limits {
    let (memory, processes) = match tenant.compartment {
        Compartment::Process => (tenant.memory, PROCESSES),
        Compartment::Vm => (tenant.memory.saturating_add(QEMU_MEMORY), QEMU_PROCESSES),
    };
    Limits { memory, huge_pages: 0, cpu_percent: tenant.cpu_percent, processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn qemus_own_memory_comes_on_top_of_the_machines() {
        let text = "attachment = \"wire\"\n[[tenant]]\nname = \"alice\"\nmemory = \"1GiB\"\n\
                    cpu_percent = 50\n\
                    [[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.2\"]\n\
                    [[wire]]\ntenant = \"alice\"\nvm = \"web\"\nvm_interface = \"a\"\n\
                    switch_interface = \"b\"\n";
        let config = crate::config::Config::parse(Path::new("p4shield.toml"), text).unwrap();
        let mut alice = config.tenants.into_iter().next().unwrap();
        let process = Limits { memory: 1 << 30, huge_pages: 0, cpu_percent: Some(50), processes: PROCESSES };
        assert_eq!(limits(&alice), process);
        alice.compartment = Compartment::Vm;
        let machine = Limits { memory: (1 << 30) + QEMU_MEMORY, processes: QEMU_PROCESSES, ..process };
        assert_eq!(limits(&alice), machine);
    }

    #[test]
    fn configuration_and_p4_vm_have_the_same_limits() {
        use p4shield_control::{MAX_NAME, MAX_VMS, Measure};
        let of_p4_vm = p4shield_runtime::sandbox::Limits::default();
        assert_eq!(p4shield_config::MEASURES, Measure::ALL.map(Measure::name));
        assert_eq!((p4shield_config::MAX_NAME, p4shield_config::MAX_VMS), (MAX_NAME, MAX_VMS.into()));
        assert_eq!(
            p4shield_config::Tee::ALL.map(p4shield_config::Tee::name),
            p4shield_qemu::Tee::ALL.map(p4shield_qemu::Tee::name)
        );
        assert_eq!(p4shield_config::DEFAULT_MEMORY, of_p4_vm.address_space);
    }
}
