//! `p4shield vm`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use p4shield_abi::VmRef;
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_console::{Exit, Refused, output, units};
use p4shield_daemon::config::{Attachment, Config, Role, Vm};
use p4shield_ovsdb::{Interface, Kind, read_once};
use p4shield_qemu::{Port, UserVm};

/// Longest time for Open vSwitch's database to answer.
const DATABASE: Duration = Duration::from_secs(5);

/// Say what the definition of a user VM needs
///
/// Example: p4shield vm devices alice/web --qemu
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Devices(Devices),
}

/// Print a user VM's pages and its port, as QEMU's options or as a domain of libvirt
///
/// Each page is an ivshmem device. With attachment = "dpdk" the port is a vhost-user socket, and the
/// VM's memory is shared with the switch; with "wire" it is the tap interface of the wire. Nothing is
/// started or changed. The options are for a definition that has all else: disks, processors, a
/// console.
///
/// Examples:
///
///   p4shield vm devices alice/web --qemu --memory 2GiB --mac 52:54:00:aa:00:01
///   qemu-system-x86_64 $(p4shield vm devices alice/web --qemu) -drive file=web.qcow2
///   p4shield vm devices alice/web --libvirt >web.xml && virt-xml-validate web.xml domain
///
/// Exit code 3 if the configuration is refused, has no such VM, or the VM's socket is unknown.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Devices {
    /// The VM
    #[arg(value_name = "TENANT/VM")]
    vm: String,
    #[command(flatten)]
    form: Form,
    /// The VM's memory, which a vhost-user switch maps
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "1GiB")]
    memory: u64,
    /// The Ethernet address of the VM's interface; QEMU gives all VMs the same one by default
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// The vhost-user socket; default: what `[[port]]` or Open vSwitch's database says
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// With --socket: the switch listens there, and QEMU connects; default: QEMU listens
    #[arg(long, requires = "socket")]
    switch_listens: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/p4shield/p4shield.toml")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Form {
    /// Print QEMU's options, one a line
    #[arg(long)]
    qemu: bool,
    /// Print a domain of libvirt, whose elements go into the VM's own
    #[arg(long)]
    libvirt: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let Command::Devices(devices) = self.command;
        devices.run()
    }
}

impl Devices {
    fn run(self) -> anyhow::Result<Exit> {
        let config = Config::load(&self.config).map_err(|e| Refused::because(&e))?;
        let (number, vm) = find(&config, &self.vm)?;
        let user_vm = UserVm {
            name: self.vm.replace('/', "-"),
            memory: self.memory,
            pages: pages(vm),
            port: self.port(&config, number, vm)?,
            mac: self.mac.clone(),
        };
        if self.form.qemu {
            for [option, value] in user_vm.qemu().map_err(|e| Refused::because(&e))? {
                output::line(format_args!("{option} {value}"));
            }
        } else {
            output::text(&user_vm.libvirt().map_err(|e| Refused::because(&e))?);
        }
        Ok(Exit::Done)
    }

    /// Returns the VM's port, as far as a definition makes it.
    fn port(&self, config: &Config, number: VmRef, vm: &Vm) -> anyhow::Result<Option<Port>> {
        if let Some(socket) = &self.socket {
            let socket = std::path::absolute(socket).context("cannot find the current folder")?;
            return Ok(Some(if self.switch_listens {
                Port::VhostClient(socket)
            } else {
                Port::VhostServer(socket)
            }));
        }
        match config.attachment {
            Attachment::Wire => {
                let wire = config.wires.iter().find(|wire| wire.vm == number);
                Ok(wire.map(|wire| Port::Tap(wire.vm_interface.clone())))
            }
            Attachment::Dpdk => vhost_user(config, number, vm).map(Some),
            // The VM's interface is that of the switch, which P4 Shield does not make.
            Attachment::Xsk => Ok(None),
        }
    }
}

/// Returns the number and the configuration of a VM.
fn find<'c>(config: &'c Config, name: &str) -> anyhow::Result<(VmRef, &'c Vm)> {
    let (tenant, vm) = name
        .split_once('/')
        .ok_or_else(|| Refused(format!("{name:?} names no VM; write TENANT/VM, for example alice/web")))?;
    let found = config.numbered_tenants().find(|(_, t)| t.name == tenant);
    let numbered = found.and_then(|(number, t)| {
        let (vm_number, vm) = t.numbered_vms().find(|(_, v)| v.name == vm)?;
        let number = VmRef { tenant: number.try_into().ok()?, vm: vm_number.try_into().ok()? };
        Some((number, vm))
    });
    let all = || {
        let vms = config.numbered_tenants().flat_map(|(_, t)| {
            t.numbered_vms().map(|(_, vm)| format!("{}/{}", t.name, vm.name)).collect::<Vec<_>>()
        });
        vms.collect::<Vec<_>>().join(", ")
    };
    let file = config.file.display();
    Ok(numbered.ok_or_else(|| Refused(format!("{file} has no VM {name}; there are {}", all())))?)
}

/// Returns the pages of a VM and their sizes.
fn pages(vm: &Vm) -> Vec<(PathBuf, u64)> {
    let handshake = vm.handshake.as_ref().map(|h| &h.page);
    let all = [
        (vm.info_page.as_ref(), INFO_PAGE_SIZE),
        (vm.log_page.as_ref(), LOG_PAGE_SIZE),
        (handshake, HANDSHAKE_PAGE_SIZE),
    ];
    all.into_iter().filter_map(|(path, size)| Some((path?.clone(), size as u64))).collect()
}

/// Finds the vhost-user socket of a VM: a port with a path as name, or the interface in Open vSwitch's
/// database.
fn vhost_user(config: &Config, number: VmRef, vm: &Vm) -> anyhow::Result<Port> {
    let named = config.ports.iter().filter(|port| port.role == Role::Vm(number)).map(|port| &*port.name);
    let names: Vec<_> = named.collect();
    if let Some(path) = names.iter().find(|name| name.starts_with('/')) {
        return Ok(Port::VhostServer(path.into()));
    }
    let remedy = "give it with --socket FILE";
    let Some(database) = &config.daemon.ovsdb else {
        let why = "no [[port]] names it, and the VM has no iface_id";
        return Err(
            Refused(format!("the vhost-user socket of VM {} is unknown: {why}; {remedy}", vm.name)).into()
        );
    };
    let switch = read_once(database, DATABASE).with_context(|| {
        format!("cannot read Open vSwitch's database at {}; start it, or {remedy}", database.display())
    })?;
    let is_of_vm = |interface: &&Interface| {
        let by_id = vm.iface_id.is_some() && interface.iface_id == vm.iface_id;
        by_id || names.contains(&&*interface.name)
    };
    let found = switch.interfaces.iter().find(is_of_vm).ok_or_else(|| {
        Refused(format!("Open vSwitch has no interface of VM {}; add it, or {remedy}", vm.name))
    })?;
    port_of(found).ok_or_else(|| {
        let name = &found.name;
        Refused(format!(
            "interface {name} of Open vSwitch has no vhost-user socket; set its type, or {remedy}"
        ))
        .into()
    })
}

/// Returns the port at an interface of Open vSwitch: the side that does not listen connects.
fn port_of(interface: &Interface) -> Option<Port> {
    let path = interface.vhost_path.as_ref()?;
    match &interface.kind {
        Kind::VhostUserClient => Some(Port::VhostServer(path.into())),
        Kind::VhostUser => Some(Port::VhostClient(path.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_does_not_listen_connects() {
        let client = Interface {
            name: "vhu-web".to_owned(),
            kind: Kind::VhostUserClient,
            vhost_path: Some("/run/vm.sock".to_owned()),
            ..Interface::default()
        };
        assert_eq!(port_of(&client), Some(Port::VhostServer("/run/vm.sock".into())));
        let listening = Interface { kind: Kind::VhostUser, ..client.clone() };
        assert_eq!(port_of(&listening), Some(Port::VhostClient("/run/vm.sock".into())));
        assert_eq!(port_of(&Interface { vhost_path: None, ..client.clone() }), None);
        assert_eq!(port_of(&Interface { kind: Kind::Dpdk, ..client }), None);
    }
}
