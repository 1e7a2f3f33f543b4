//! Semantic validation of a parsed configuration.

use super::error::Problem;
use super::file::{self, Text};
use super::source::Source;
use super::{
    Attachment, Compartment, Config, Daemon, MAX_NAME, MAX_VMS, MEASURES, NoProgram, Placement, Tee, Tenant,
    Vm, Wire,
};
use p4shield_abi::channel::{Geometry, MAX_HEADER_BYTES, MAX_HEADROOM, MAX_SLOTS};
use p4shield_abi::{FailPolicy, UnownedPolicy, VmRef};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Default of `slots` and of `max_held`: what a P4 VM may have to judge after 20 ms without a core.
const DEFAULT_SLOTS: u32 = 4096;
/// Default path of the daemon's socket.
const SOCKET: &str = "/run/p4shield/p4shield.sock";
/// Default path of the daemon's socket for the libraries in switches.
const ATTACH_SOCKET: &str = "/run/p4shield/attach.sock";
/// Default path of the socket of Open vSwitch's database.
const OVSDB: &str = "/run/openvswitch/db.sock";
/// Highest number of a core that glibc's `cpu_set_t` holds.
pub(super) const MAX_CPU: u32 = 1023;
/// Highest number of a network: VNIs of VXLAN and Geneve have 24 bits.
pub(super) const MAX_VNI: u32 = (1 << 24) - 1;
/// Highest first user ID, so that the IDs of all tenants fit.
pub(super) const MAX_FIRST_UID: u32 = u32::MAX - 0x1_0000;
/// Longest name of an interface: `IFNAMSIZ` without the terminating zero.
const MAX_INTERFACE: usize = 15;

/// Returns what kind of address this is, if no VM can have it.
fn no_address_of_a_vm(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    match address {
        _ if address.is_unspecified() => Some("the unspecified address"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        _ => None,
    }
}

/// Validates a configuration and collects what is invalid.
pub(super) struct Checker<'a> {
    text: &'a str,
    folder: &'a Path,
    problems: Vec<Problem>,
    source: Source,
}

pub(super) fn check(path: &Path, text: &str, file: &file::File) -> Result<Config, Vec<Problem>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut c = Checker { text, folder, problems: Vec::new(), source: Source::new(text) };
    let attachment = c.attachment(file);
    let placement = c.placement(file, attachment);
    let compartment = c.compartment(file.compartment.as_ref(), Compartment::default(), placement);
    let tee = c.tee(file.tee.as_ref(), Tee::default(), compartment);
    let level = c.level(file);
    let mut daemon = c.daemon(file.daemon.as_ref().unwrap_or(&file::Daemon::default()));
    let machine = c.machine(file.machine.as_ref().unwrap_or(&file::Machine::default()));
    let topology = c.topology(file, level, attachment, &machine);
    let tenants: Vec<_> = file.tenant.iter().map(|t| c.tenant(t, (compartment, tee), placement)).collect();
    c.unique_names(file);
    c.unique_addresses(file, attachment);
    c.networks(file, attachment);
    c.unshared_paths(file);
    let mut wires: Vec<_> = file.wire.iter().filter_map(|w| c.wire(w, &file.tenant)).collect();
    wires.extend(c.inner_wires(file, attachment, &wires));
    c.unique_interfaces(file);
    let ports = c.ports(file, attachment);
    let tunnels = c.tunnels(file, attachment);
    if attachment != Attachment::Wire && file.tenant.iter().flat_map(|t| &t.vm).any(|v| v.iface_id.is_some())
    {
        daemon.ovsdb.get_or_insert_with(|| OVSDB.into());
    }
    if file.tenant.is_empty() {
        c.problem(0..0, "there is no tenant: write at least one [[tenant]]".to_owned());
    }
    if c.problems.is_empty() {
        let file = path.to_owned();
        let source = c.source;
        return Ok(Config {
            file,
            attachment,
            placement,
            level,
            topology,
            daemon,
            machine,
            tenants,
            wires,
            ports,
            tunnels,
            source,
        });
    }
    c.problems.sort_by_key(|p| (p.line, p.column));
    Err(c.problems)
}

impl Checker<'_> {
    pub(super) fn problem(&mut self, span: std::ops::Range<usize>, message: String) {
        self.problems.push(Problem::at(self.text, span, message));
    }

    /// Returns the line of a place in the text.
    pub(super) fn line(&self, span: std::ops::Range<usize>) -> usize {
        Problem::at(self.text, span, String::new()).line
    }

    fn attachment(&mut self, file: &file::File) -> Attachment {
        let words = [Attachment::Wire, Attachment::Dpdk, Attachment::Xsk].map(|a| (a.name(), a));
        let attachment = self.word("attachment", file.attachment.as_ref(), &words);
        if let Some(wire) = file.wire.first().filter(|_| attachment != Attachment::Wire) {
            let message =
                "[[wire]] needs attachment = \"wire\"; write [[port]] tables, or remove the key attachment";
            self.problem(wire.vm_interface.span(), message.to_owned());
        }
        attachment
    }

    fn placement(&mut self, file: &file::File, attachment: Attachment) -> Placement {
        let Some(value) = &file.placement else { return Placement::default() };
        if value.as_ref() == "extern" {
            let message =
                "placement: \"extern\" is not implemented in this version; write placement = \"p4vm\"";
            self.problem(value.span(), message.to_owned());
            return Placement::default();
        }
        let words = [Placement::P4vm, Placement::Inline].map(|p| (p.name(), p));
        let placement = self.word("placement", Some(value), &words);
        if placement == Placement::Inline && attachment == Attachment::Wire {
            let message = "placement: \"inline\" needs a switch process, which attachment = \"wire\" does \
                           not have; write \
                           placement = \"p4vm\", or attachment = \"dpdk\" or \"xsk\"";
            self.problem(value.span(), message.to_owned());
        }
        placement
    }

    /// Returns the value of one of several words; the first is the default.
    pub(super) fn word<T: Copy>(&mut self, key: &str, value: Option<&Text>, words: &[(&str, T)]) -> T {
        let default = words[0].1;
        let Some(value) = value else { return default };
        if let Some((_, t)) = words.iter().find(|(w, _)| *w == value.as_ref()) {
            return *t;
        }
        let choices: Vec<_> = words.iter().map(|(w, _)| format!("{w:?}")).collect();
        let message = format!("{key}: {:?} is unknown; write {}", value.as_ref(), choices.join(" or "));
        self.problem(value.span(), message);
        default
    }

    pub(super) fn number<T>(
        &mut self,
        key: &str,
        value: Option<&Spanned<T>>,
        default: T,
        least: T,
        most: T,
    ) -> T
    where
        T: Copy + PartialOrd + std::fmt::Display,
    {
        let Some(value) = value else { return default };
        let n = *value.as_ref();
        if n >= least && n <= most {
            return n;
        }
        self.problem(
            value.span(),
            format!("{key}: {n} is out of range; write a number from {least} to {most}"),
        );
        default
    }

    /// Checks a name, which becomes part of keys, logs and metrics.
    fn name(&mut self, what: &str, name: &Text) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let text = name.as_ref();
        if !(1..=MAX_NAME).contains(&text.len()) || !text.chars().all(plain) {
            let message = format!(
                "name: {text:?} is not a valid name of a {what}; write 1 to {MAX_NAME} letters, digits, \
                 '.', '_' or '-'"
            );
            self.problem(name.span(), message);
        }
        text.clone()
    }

    /// Resolves a path, which is relative to the file's folder.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Resolves a path and remembers its place in the file.
    pub(super) fn place(&mut self, path: &Spanned<PathBuf>) -> PathBuf {
        let resolved = self.path(path.as_ref());
        self.source.insert(&resolved, &Problem::at(self.text, path.span(), String::new()));
        resolved
    }

    fn daemon(&mut self, d: &file::Daemon) -> Daemon {
        let metrics = d.metrics.as_ref().and_then(|m| match m.as_ref().parse::<SocketAddr>() {
            Ok(a) if a.ip().is_loopback() => Some(a),
            _ => {
                let message = format!(
                    "metrics: {:?} is not a loopback address with a port; write for example metrics = \
                     \"127.0.0.1:9464\"",
                    m.as_ref()
                );
                self.problem(m.span(), message);
                None
            }
        });
        let mut allow_missing = Vec::new();
        for m in &d.allow_missing {
            if MEASURES.contains(&m.as_ref().as_str()) {
                allow_missing.push(m.as_ref().clone());
            } else {
                let message = format!(
                    "allow_missing: there is no sandbox measure {:?}; write one of {}",
                    m.as_ref(),
                    MEASURES.join(", ")
                );
                self.problem(m.span(), message);
            }
        }
        let guard = [("required", true), ("off", false)];

        let first_uid = d.first_uid.as_ref().map(|u| self.number("first_uid", Some(u), 1, 1, MAX_FIRST_UID));
        Daemon {
            socket: self.path(d.socket.as_deref().unwrap_or(Path::new(SOCKET))),
            metrics,
            allow_missing,
            guard: self.word("guard", d.guard.as_ref(), &guard),
            first_uid,
            attach_socket: self.path(d.attach_socket.as_deref().unwrap_or(Path::new(ATTACH_SOCKET))),
            switch_uids: d.switch_uids.clone(),
            switch_gids: d.switch_gids.clone(),
            ovsdb: d.ovsdb.as_ref().map(|p| self.path(p)),
            state: d.state.as_ref().map(|p| self.path(p)),
            adoption_time: self.duration(
                "adoption_time",
                d.adoption_time.as_ref(),
                Duration::from_secs(60),
                Duration::from_secs(86_400),
            ),
        }
    }

    fn geometry(&mut self, t: &file::Tenant) -> Geometry {
        let default = Geometry::default();
        let header_bytes =
            self.number("header_bytes", t.header_bytes.as_ref(), default.header_bytes, 14, MAX_HEADER_BYTES);
        let headroom = self.number("headroom", t.headroom.as_ref(), default.headroom, 0, MAX_HEADROOM);
        let slots = self.number("slots", t.slots.as_ref(), DEFAULT_SLOTS, 2, MAX_SLOTS);
        if let Some(s) = t.slots.as_ref().filter(|_| !slots.is_power_of_two()) {
            let near = slots.next_power_of_two();
            self.problem(s.span(), format!("slots: {slots} is not a power of two; write slots = {near}"));
            return default;
        }
        Geometry { slots, header_bytes, headroom }
    }

    /// Checks a tenant. `default` isolates the P4 VMs of tenants that do not say otherwise.
    fn tenant(&mut self, t: &file::Tenant, default: (Compartment, Tee), placement: Placement) -> Tenant {
        let ms = Duration::from_millis;
        if t.vm.is_empty() {
            self.problem(
                t.name.span(),
                format!("tenant {:?} has no VM: write a [[tenant.vm]] below it", t.name.as_ref()),
            );
        }
        if t.vm.len() > MAX_VMS {
            self.problem(t.name.span(), format!("tenant {:?} has more than {MAX_VMS} VMs", t.name.as_ref()));
        }
        let compartment = self.compartment(t.compartment.as_ref(), default.0, placement);
        let tee = self.tee(t.tee.as_ref(), default.1, compartment);
        let memory = self.memory(t.memory.as_ref());
        self.machine_memory(t, compartment, memory);
        self.bundles(t, placement);
        Tenant {
            name: self.name("tenant", &t.name),
            compartment,
            tee,
            zone: t.zone.as_ref().map(|zone| self.name("zone", zone)),
            controllers: t.controllers.as_ref().map(|table| self.controllers(table)),
            key_file: t.key_file.as_ref().map(|p| self.place(p)),
            bundle_key: t.bundle_key.as_ref().map(|p| self.place(p)),
            socket: self.tenant_socket(t),
            key_window: self.duration("key_window", t.key_window.as_ref(), ms(600_000), ms(86_400_000)),
            fail: self.word(
                "fail",
                t.fail.as_ref(),
                &[("drop", FailPolicy::Drop), ("pass", FailPolicy::Pass)],
            ),
            no_program: self.word(
                "no_program",
                t.no_program.as_ref(),
                &[("pass", NoProgram::Pass), ("drop", NoProgram::Drop), ("skip", NoProgram::Skip)],
            ),
            deadline: self.duration("deadline", t.deadline.as_ref(), ms(200), ms(10_000)),
            stall: self.duration("stall", t.stall.as_ref(), ms(5000), ms(60_000)),
            max_held: self.number("max_held", t.max_held.as_ref(), DEFAULT_SLOTS as usize, 1, 1 << 16),
            geometry: self.geometry(t),
            age_limit: self.duration("age_limit", t.age_limit.as_ref(), ms(500), ms(3_600_000)),
            log_interval: self.duration("log_interval", t.log_interval.as_ref(), ms(100), ms(60_000)),
            budget: self.number("budget", t.budget.as_ref(), 1 << 18, 1 << 12, 1 << 32),
            memory,
            cpu_percent: t.cpu_percent.as_ref().map(|p| self.number("cpu_percent", Some(p), 100, 1, 100_000)),
            cpu: t.cpu.as_ref().map(|c| self.number("cpu", Some(c), 0, 0, MAX_CPU)),
            busy: t.busy,
            delay: (t.delay.as_ref()).map_or(Duration::ZERO, |d| {
                self.duration("delay", Some(d), Duration::from_micros(10), ms(10))
            }),
            vms: t.vm.iter().map(|v| self.vm(v, t, (tee, placement))).collect(),
        }
    }

    fn vm(&mut self, v: &file::Vm, t: &file::Tenant, place: (Tee, Placement)) -> Vm {
        if v.addresses.is_empty() {
            let message = format!(
                "VM {:?} has no address: write addresses = [\"10.0.0.2\"] with its own",
                v.name.as_ref()
            );
            self.problem(v.name.span(), message);
        }
        let addresses = v.addresses.iter().filter_map(|a| self.address(a)).collect();
        let page = v.info_page.as_ref().or(v.log_page.as_ref());
        let has_key = t.key_file.is_some() || v.key_file.is_some() || v.key.is_some();
        if let Some(page) = page.filter(|_| !has_key) {
            let message = format!(
                "VM {:?} has a page, but tenant {:?} has no key: make one with `p4shield keygen FILE` and \
                 write key_file = FILE",
                v.name.as_ref(),
                t.name.as_ref()
            );
            self.problem(page.span(), message);
        }
        let ingress = v.ingress.iter().chain(&v.bundle);
        let programs =
            [ingress.map(|p| self.place(p)).collect(), v.egress.iter().map(|p| self.place(p)).collect()];
        let [info_page, log_page] =
            [&v.info_page, &v.log_page].map(|page| page.as_ref().map(|p| self.place(p)));
        Vm {
            name: self.name("VM", &v.name),
            addresses,
            interface: v.interface.as_ref().map(|i| i.as_ref().clone()),
            mac: v.mac.as_ref().and_then(|mac| self.mac("mac", mac)),
            programs,
            key_file: v.key_file.as_ref().map(|p| self.place(p)),
            handshake: self.handshake(v, t, place),
            info_page,
            log_page,
            page_owner: v.page_owner,
            packet_rate: self.packet_rate(v.packet_rate.as_ref()),
            iface_id: v.iface_id.as_ref().map(|id| self.port_name("iface_id", id)),
            vni: v.vni.as_ref().map(|vni| self.number("vni", Some(vni), 0, 0, MAX_VNI)),
        }
    }

    fn address(&mut self, text: &Text) -> Option<IpAddr> {
        let parsed: Option<IpAddr> = text.as_ref().parse().ok();
        if parsed.is_none() {
            let message = format!(
                "addresses: {:?} is not an IP address; write one without a prefix length",
                text.as_ref()
            );
            self.problem(text.span(), message);
        }
        if let Some(kind) = parsed.and_then(no_address_of_a_vm) {
            let message = format!("addresses: {} is {kind}; write an address of the VM's own", text.as_ref());
            self.problem(text.span(), message);
        }
        parsed
    }

    pub(super) fn interface(&mut self, key: &str, name: &Text) -> String {
        let text = name.as_ref();
        let fits = (1..=MAX_INTERFACE).contains(&text.len());
        if !fits || text.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control()) {
            let message = format!(
                "{key}: {text:?} is not a valid name of an interface; write 1 to {MAX_INTERFACE} visible \
                 characters"
            );
            self.problem(name.span(), message);
        }
        text.clone()
    }

    fn wire(&mut self, w: &file::Wire, tenants: &[file::Tenant]) -> Option<Wire> {
        let vm_interface = self.interface("vm_interface", &w.vm_interface);
        let switch_interface = self.interface("switch_interface", &w.switch_interface);
        let others = self.word(
            "others",
            w.others.as_ref(),
            &[("pass", UnownedPolicy::Pass), ("drop", UnownedPolicy::Drop)],
        );
        let vm = self.vm_ref(&w.tenant, &w.vm, tenants)?;
        let own_addresses_only = w.own_addresses_only;
        Some(Wire { vm_interface, switch_interface, port: None, vm, others, own_addresses_only })
    }

    /// Returns the VM with these names.
    pub(super) fn vm_ref(&mut self, tenant: &Text, vm: &Text, tenants: &[file::Tenant]) -> Option<VmRef> {
        let Some(t) = tenants.iter().position(|t| t.name.as_ref() == tenant.as_ref()) else {
            let message =
                format!("tenant: there is no [[tenant]] named {:?}; write an existing name", tenant.as_ref());
            self.problem(tenant.span(), message);
            return None;
        };
        let Some(v) = tenants[t].vm.iter().position(|v| v.name.as_ref() == vm.as_ref()) else {
            let message = format!(
                "vm: tenant {:?} has no VM named {:?}; write an existing name",
                tenant.as_ref(),
                vm.as_ref()
            );
            self.problem(vm.span(), message);
            return None;
        };
        Some(VmRef { tenant: u16::try_from(t).ok()?, vm: u16::try_from(v).ok()? })
    }

    /// Reports each of `values` that equals a previous one.
    pub(super) fn unique<'f>(&mut self, what: &str, values: impl Iterator<Item = &'f Text>) {
        let mut seen = HashMap::new();
        for value in values {
            if let Some(line) = seen.get(value.as_ref()) {
                let message =
                    format!("{what} {:?} exists already, in line {line}; write another", value.as_ref());
                self.problem(value.span(), message);
            } else {
                let line = self.line(value.span());
                seen.insert(value.as_ref(), line);
            }
        }
    }

    fn unique_names(&mut self, file: &file::File) {
        self.unique("tenant", file.tenant.iter().map(|t| &t.name));
        for t in &file.tenant {
            self.unique("VM", t.vm.iter().map(|v| &v.name));
        }
    }

    /// Compares parsed addresses. VMs in different networks may have the same address.
    fn unique_addresses(&mut self, file: &file::File, attachment: Attachment) {
        let mut seen: HashMap<IpAddr, Vec<(Option<u32>, &Text)>> = HashMap::new();
        let vms = file.tenant.iter().flat_map(|t| &t.vm);
        for (vm, text) in vms.flat_map(|v| v.addresses.iter().map(move |text| (v, text))) {
            let Ok(address) = text.as_ref().parse() else { continue };
            let vni = vm.vni.as_ref().map(|vni| *vni.as_ref());
            let others = seen.entry(address).or_default();
            let overlaps = |other: Option<u32>| vni.is_none() || other.is_none() || other == vni;
            if let Some((_, first)) = others.iter().find(|(other, _)| overlaps(*other)) {
                let line = self.line(first.span());
                let mut message = format!(
                    "address {address} belongs to another VM already, in line {line}; an address must \
                     identify one VM"
                );
                if attachment == Attachment::Dpdk {
                    message.push_str(
                        " of a network: if the VMs are in two networks of tunnels, write vni = NUMBER for \
                         each VM",
                    );
                }
                self.problem(text.span(), message);
            } else {
                others.push((vni, text));
            }
        }
    }

    fn unique_interfaces(&mut self, file: &file::File) {
        self.unique("interface", file.wire.iter().flat_map(|w| [&w.vm_interface, &w.switch_interface]));
    }
}
