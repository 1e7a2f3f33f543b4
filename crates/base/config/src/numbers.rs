//! Numbers of tenants and VMs that stay the same while a running daemon's configuration changes.
//!
//! Channels, held packets and counters know tenants and VMs by their numbers ([`VmRef`]). A tenant or VM
//! of a new configuration therefore gets the number that one of the same name has; the others get numbers
//! that have been vacant, or new ones. A number that becomes vacant is not assigned in the same change: a
//! message that still refers to it meets an entry without a name and never another tenant.

use super::{Compartment, Config, NoProgram, Port, Role, Tee, Tenant, Vm};
use p4shield_abi::channel::Geometry;
use p4shield_abi::{FailPolicy, VmRef};
use std::time::Duration;

/// An entry with a name. Without one it is vacant.
trait Entry: Clone {
    fn name(&self) -> &str;
    fn vacant() -> Self;
}

impl Entry for Tenant {
    fn name(&self) -> &str {
        &self.name
    }

    fn vacant() -> Self {
        Self {
            name: String::new(),
            compartment: Compartment::default(),
            tee: Tee::default(),
            zone: None,
            controllers: None,
            key_file: None,
            bundle_key: None,
            socket: None,
            key_window: Duration::ZERO,
            fail: FailPolicy::Drop,
            no_program: NoProgram::Drop,
            deadline: Duration::ZERO,
            stall: Duration::ZERO,
            max_held: 1,
            geometry: Geometry::default(),
            age_limit: Duration::ZERO,
            log_interval: Duration::ZERO,
            budget: 0,
            memory: 0,
            cpu_percent: None,
            cpu: None,
            busy: false,
            delay: Duration::ZERO,
            vms: Vec::new(),
        }
    }
}

impl Entry for Vm {
    fn name(&self) -> &str {
        &self.name
    }

    fn vacant() -> Self {
        Self {
            name: String::new(),
            addresses: Vec::new(),
            interface: None,
            mac: None,
            programs: [Vec::new(), Vec::new()],
            key_file: None,
            handshake: None,
            info_page: None,
            log_page: None,
            page_owner: None,
            packet_rate: None,
            iface_id: None,
            vni: None,
        }
    }
}

impl Tenant {
    /// Returns whether the number belongs to no tenant at present.
    #[must_use]
    pub const fn is_vacant(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns the VMs with their numbers.
    pub fn numbered_vms(&self) -> impl Iterator<Item = (usize, &Vm)> {
        self.vms.iter().enumerate().filter(|(_, vm)| !vm.is_vacant())
    }
}

impl Vm {
    /// Returns whether the number belongs to no VM at present.
    #[must_use]
    pub const fn is_vacant(&self) -> bool {
        self.name.is_empty()
    }
}

impl Config {
    /// Returns the tenants with their numbers.
    pub fn numbered_tenants(&self) -> impl Iterator<Item = (usize, &Tenant)> {
        self.tenants.iter().enumerate().filter(|(_, t)| !t.is_vacant())
    }

    /// Returns the names of all tenants and their VMs, by number; vacant numbers have empty ones.
    #[must_use]
    pub fn names(&self) -> Vec<(String, Vec<String>)> {
        let vms = |t: &Tenant| t.vms.iter().map(|vm| vm.name.clone()).collect();
        self.tenants.iter().map(|t| (t.name.clone(), vms(t))).collect()
    }

    /// Gives tenants and VMs the numbers that they have in [`Self::names`] of another configuration.
    #[must_use]
    pub fn numbered_by(self, names: &[(String, Vec<String>)]) -> Self {
        let vm = |name: &String| Vm { name: name.clone(), ..Vm::vacant() };
        let tenant = |(name, vms): &(String, Vec<String>)| Tenant {
            name: name.clone(),
            vms: vms.iter().map(vm).collect(),
            ..Tenant::vacant()
        };
        let before = Self { tenants: names.iter().map(tenant).collect(), ..self.clone() };
        self.numbered_like(&before)
    }

    /// Gives tenants and VMs that `before` has, by name, the same numbers, and changes no other.
    #[must_use]
    pub fn numbered_like(mut self, before: &Self) -> Self {
        let mut renumbered = Vec::new();
        for tenant in &mut self.tenants {
            let known = before.tenants.iter().find(|t| t.name == tenant.name);
            let (vms, numbers) = arrange(std::mem::take(&mut tenant.vms), known.map_or(&[], |t| &t.vms));
            tenant.vms = vms;
            renumbered.push(numbers);
        }
        let (tenants, numbers) = arrange(self.tenants, &before.tenants);
        self.tenants = tenants;
        // Both lists are shorter than a u16 can count: the file's checks limit them.
        let move_ref = |vm: &mut VmRef| {
            let tenant = usize::from(vm.tenant);
            vm.vm = renumbered[tenant][usize::from(vm.vm)] as u16;
            vm.tenant = numbers[tenant] as u16;
        };
        self.wires.iter_mut().for_each(|wire| move_ref(&mut wire.vm));
        let vm_of =
            |port| if let &mut Port { role: Role::Vm(ref mut vm), .. } = port { Some(vm) } else { None };
        self.ports.iter_mut().filter_map(vm_of).for_each(move_ref);
        self
    }
}

/// Arranges entries by the numbers of `before`. Returns them with the new number of each.
fn arrange<T: Entry>(entries: Vec<T>, before: &[T]) -> (Vec<T>, Vec<usize>) {
    let mut arranged = vec![T::vacant(); before.len()];
    let numbers: Vec<_> = entries
        .iter()
        .map(|entry| {
            let known = before.iter().position(|b| b.name() == entry.name());
            if let Some(at) = known {
                arranged[at] = entry.clone();
            }
            known
        })
        .collect();
    let mut free = (0..before.len()).filter(|at| before[*at].name().is_empty());
    let place = |(entry, known): (T, Option<usize>)| {
        known.unwrap_or_else(|| match free.next() {
            Some(at) => {
                arranged[at] = entry;
                at
            }
            None => {
                arranged.push(entry);
                arranged.len() - 1
            }
        })
    };
    let numbers = entries.into_iter().zip(numbers).map(place).collect();
    (arranged, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(tenants: &[(&str, &[&str])]) -> Config {
        let mut text = String::from("attachment = \"xsk\"\n");
        let mut last = 0;
        for (tenant, vms) in tenants {
            text += &format!("[[tenant]]\nname = \"{tenant}\"\n");
            for vm in *vms {
                last += 1;
                text += &format!("[[tenant.vm]]\nname = \"{vm}\"\naddresses = [\"10.0.0.{last}\"]\n");
            }
        }
        for (tenant, vms) in tenants {
            for vm in *vms {
                text +=
                    &format!("[[port]]\nname = \"{tenant}-{vm}\"\ntenant = \"{tenant}\"\nvm = \"{vm}\"\n");
            }
        }
        Config::parse(Path::new("x.toml"), &text).unwrap()
    }

    fn expected(tenants: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
        let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        tenants.iter().map(|(t, vms)| ((*t).to_owned(), own(vms))).collect()
    }

    #[test]
    fn names_keep_their_numbers_and_vacant_ones_are_reused_later() {
        let first = config(&[("a", &["x", "y"]), ("b", &["x"]), ("c", &["x"])]);
        let second = config(&[("d", &["x"]), ("c", &["y"]), ("a", &["y", "z", "x"])]).numbered_like(&first);
        let want: &[(&str, &[&str])] =
            &[("a", &["x", "y", "z"]), ("", &[]), ("c", &["", "y"]), ("d", &["x"])];
        assert_eq!(second.names(), expected(want));
        let third = config(&[("e", &["x"]), ("c", &["z", "y"]), ("a", &["z"])]).numbered_like(&second);
        let want: &[(&str, &[&str])] = &[("a", &["", "", "z"]), ("e", &["x"]), ("c", &["z", "y"]), ("", &[])];
        assert_eq!(third.names(), expected(want));
        assert!(third.tenant("").is_none(), "a vacant number has no name to be found by");
    }

    #[test]
    fn ports_follow_their_vms_to_new_numbers() {
        let first = config(&[("a", &["x", "y"]), ("b", &["x"])]);
        let second = config(&[("b", &["w", "x"]), ("c", &["x"]), ("a", &["y"])]).numbered_like(&first);
        for port in &second.ports {
            let Role::Vm(vm) = port.role else { panic!("each port is a VM's") };
            let tenant = &second.tenants[usize::from(vm.tenant)];
            assert_eq!(port.name, format!("{}-{}", tenant.name, tenant.vms[usize::from(vm.vm)].name));
        }
    }

    #[test]
    fn names_alone_restore_the_numbers_of_a_file() {
        let first = config(&[("a", &["x", "y"]), ("b", &["x"]), ("c", &["x"])]);
        let tenants: &[(&str, &[&str])] = &[("d", &["x"]), ("c", &["y"]), ("a", &["y", "z", "x"])];
        let second = config(tenants).numbered_like(&first);
        assert_eq!(config(tenants).numbered_by(&second.names()), second);
    }

    #[test]
    fn the_same_file_has_the_same_numbers() {
        let first = config(&[("a", &["x", "y"]), ("b", &["x"])]);
        assert_eq!(first.clone().numbered_like(&first), first);
    }
}
