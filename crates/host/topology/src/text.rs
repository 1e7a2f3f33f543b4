//! A plan as text.

use super::mac::text as mac;
use super::model::{Compartment, Controllers, Link, Plan};
use p4shield_config::{Datapath, Level, NicSwitchKind};
use std::fmt;
use std::net::SocketAddr;

/// The plan in tables. Each line has its end.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "level {}: {}", self.level.name(), meaning(self.level))?;
        let kind = match self.datapath {
            Datapath::Sockets => "",
            Datapath::Dpdk => ", switches forward with DPDK",
            Datapath::Afxdp => ", switches are P4 switches with AF_XDP",
        };
        let machines = if self.machine.is_some() { ", compartments are virtual machines" } else { "" };
        let bridge = match self.nic_switch {
            NicSwitchKind::Tc => "",
            NicSwitchKind::Xdp => ", the NIC switch is in XDP",
            NicSwitchKind::Bridge => ", the NIC switch is the kernel's bridge",
            NicSwitchKind::Sriov => ", the NIC switch is the uplink's card",
        };
        writeln!(f, "uplink {}, router {}{kind}{machines}{bridge}", self.uplink, mac(self.gateway_mac))?;
        writeln!(f, "{}\n", self.resources())?;
        write!(f, "{}\n{}\n{}", self.compartment_table(), self.tenant_table(), self.vm_table())?;
        if self.compartments.iter().any(|c| c.controllers.is_some()) {
            write!(f, "\n{}", self.controller_table())?;
        }
        if !self.functions.is_empty() {
            write!(f, "\n{}", self.function_table())?;
        }
        Ok(())
    }
}

/// Returns how switches are divided among tenants.
const fn meaning(level: Level) -> &'static str {
    match level {
        Level::Baseline => "one switch on the host, for all tenants",
        Level::One => "one switch in a compartment, for all tenants",
        Level::Two => "a switch in a compartment for each tenant or zone",
        Level::Three => "a switch in user space in a compartment for each tenant or zone",
    }
}

/// Writes a number of bytes in MiB, which all sizes of compartments are written in.
pub(super) fn mebibytes(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{}MiB", bytes >> 20),
        _ => format!("{:.1}MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

impl Plan {
    fn resources(&self) -> String {
        let isolated: Vec<_> = self.compartments.iter().filter(|c| c.in_out.is_some()).collect();
        let count = match isolated.len() {
            0 => return "no switch compartment, no virtual function".to_owned(),
            1 => "1 switch compartment".to_owned(),
            n => format!("{n} switch compartments"),
        };
        let memory = isolated.iter().map(|c| c.memory).fold(0, u64::saturating_add);
        let pages = isolated.iter().map(|c| c.huge_pages).fold(0, u64::saturating_add);
        let pages = if pages > 0 { format!(", {} of huge pages", mebibytes(pages)) } else { String::new() };
        let condition = if self.functions.is_empty() { " if SR-IOV makes the ports" } else { "" };
        format!(
            "{count}, {} in all{pages}, cores {}, {} virtual functions{condition}",
            mebibytes(memory),
            self.cores.name(),
            self.vfs()
        )
    }

    fn compartment_table(&self) -> String {
        let row = |c: &Compartment| {
            let place = if c.in_out.is_some() { [c.core.to_string(), mebibytes(c.memory)] } else { none() };
            let [outer, inner] =
                c.in_out.as_ref().map_or_else(|| [self.uplink.clone(), "-".to_owned()], ends);
            let [core, memory] = place;
            vec![c.name.clone(), core, memory, mac(c.mac), outer, inner]
        };
        let header = ["SWITCH", "CORE", "MEMORY", "OUTSIDE MAC", "OUTSIDE PORT", "INSIDE"];
        table(&header, self.compartments.iter().map(row).collect())
    }

    fn tenant_table(&self) -> String {
        let mut rows = Vec::new();
        for c in &self.compartments {
            for t in &c.tenants {
                let vlan = if t.gateway.is_some() { t.vlan.to_string() } else { "-".to_owned() };
                let [outer, inner] = t.gateway.as_ref().map_or_else(none, ends);
                rows.push(vec![t.name.clone(), c.name.clone(), vlan, mac(t.mac), outer, inner]);
            }
        }
        table(&["TENANT", "SWITCH", "VLAN", "GATEWAY MAC", "GATEWAY PORT", "INSIDE"], rows)
    }

    fn vm_table(&self) -> String {
        let tenants = || self.compartments.iter().flat_map(|c| &c.tenants);
        // The VM's own interface, if a wire is between it and the port.
        let wires = tenants().flat_map(|t| &t.vms).any(|vm| vm.wire.is_some());
        let mut rows = Vec::new();
        for t in tenants() {
            for vm in &t.vms {
                let addresses: Vec<_> = vm.addresses.iter().map(ToString::to_string).collect();
                let mut row = vec![format!("{}/{}", t.name, vm.name), vm.port_interface().to_owned()];
                row.extend([mac(vm.mac), addresses.join(" ")]);
                let wire = vm.wire.as_ref().map_or("-", |_| &vm.interface);
                row.extend(wires.then(|| wire.to_owned()));
                rows.push(row);
            }
        }
        let header = ["VM", "PORT", "MAC", "ADDRESSES", "PROGRAM AT"];
        table(&header[..if wires { 5 } else { 4 }], rows)
    }

    fn function_table(&self) -> String {
        let row = |(port, number): (&String, &u16)| vec![port.clone(), number.to_string()];
        table(&["PORT", "VIRTUAL FUNCTION"], self.functions.iter().map(row).collect())
    }

    fn controller_table(&self) -> String {
        let of = |c: &Compartment| Some((c.name.clone(), c.controllers.clone()?));
        let row = |(name, c): (String, Controllers)| {
            vec![name, address(c.ovsdb), address(c.openflow), c.certificate.display().to_string()]
        };
        let rows = self.compartments.iter().filter_map(of).map(row).collect();
        table(&["SWITCH", "OVSDB", "OPENFLOW", "CERTIFICATE"], rows)
    }
}

/// Writes an end point for controllers.
fn address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "-".to_owned(), |address| address.to_string())
}

fn ends(link: &Link) -> [String; 2] {
    [link.outer.clone(), link.inner.clone()]
}

fn none() -> [String; 2] {
    ["-".to_owned(), "-".to_owned()]
}

/// Aligns columns, whose cells are ASCII.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| lines.iter().filter_map(|l| l.get(at)).map(String::len).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
