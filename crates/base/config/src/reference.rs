//! The reference of all configuration keys: the only source of docs/reference/configuration.md.
//!
//! The crate's tests check that the page has this content, that the tables list exactly the keys that `file`
//! accepts, and that the defaults and limits below are those of `check`.

use super::Attachment::{self, Dpdk, Wire, Xsk};
use super::check::{MAX_CPU, MAX_FIRST_UID, MAX_VNI};
use super::compartment::{ACCELERATORS, MAX_PROCESSORS};
use super::nic_switch::MAX_VLAN;
use super::topology::{MAX_HOST, MAX_PACKET_RATE};
use super::{MAX_NAME, MEASURES};
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM, MAX_SLOTS};
use std::fmt::Write;

/// A table of the file.
#[derive(Debug)]
pub struct Table {
    /// Its header in the file, such as `[[tenant.vm]]`; empty for the keys at the top.
    pub header: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: &'static str,
    /// Its default.
    pub default: KeyDefault,
    /// The values that are allowed.
    pub allowed: Allowed,
    /// The attachments that it applies to.
    pub attachments: &'static [Attachment],
    /// Its meaning, as Markdown.
    pub meaning: &'static str,
}

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDefault {
    /// There is none: the key must be present.
    Required,
    /// This TOML value.
    Value(&'static str),
    /// No value, which means this.
    Absent(&'static str),
}

/// The values that are allowed for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// One of these strings.
    Words(&'static [&'static str]),
    /// An integer from the first to the second number.
    Range(u64, u64),
    /// What this text says.
    Text(&'static str),
}

const ALL: &[Attachment] = &[Wire, Dpdk, Xsk];
const SWITCHES: &[Attachment] = &[Dpdk, Xsk];
const PATH: Allowed = Text(
    "a path; a relative one is relative to the folder of the \
                                     configuration file",
);
const NAME: Allowed = Text("1 to 64 letters, digits, `.`, `_` or `-`");
const INTERFACE: Allowed = Text("1 to 15 visible characters");
const SWITCH_INTERFACE: Allowed = Text("1 to 15 letters, digits, `.`, `_` or `-`");
const MAC: Allowed = Text("a unicast Ethernet address such as `02:00:00:00:00:01`");
const VISIBLE: Allowed = Text("1 to 107 visible characters");
const OBJECTS: Allowed = Text("paths of object files, which are linked together");
const END_POINT: Allowed = Text("an IP address with a port, unique in the file");
const IDS: Allowed = Text("numeric IDs");
const BOOLEAN: Allowed = Text("`true`, `false`");

// The texts above repeat these limits.
const _: () = assert!(MAX_NAME == 64);

const fn key(
    name: &'static str,
    kind: &'static str,
    default: KeyDefault,
    allowed: Allowed,
    attachments: &'static [Attachment],
    meaning: &'static str,
) -> Key {
    Key { name, kind, default, allowed, attachments, meaning }
}

use Allowed::{Range, Text, Words};
use KeyDefault::{Absent, Required, Value};

/// All tables, in the order of the page.
pub const TABLES: &[Table] = &[
    Table { header: "", meaning: "What this installation consists of.", keys: TOP },
    Table { header: "[daemon]", meaning: "The host daemon.", keys: DAEMON },
    Table {
        header: "[machine]",
        meaning: "The virtual machines of tenants with `compartment = \"vm\"`.",
        keys: MACHINE,
    },
    Table {
        header: "[topology]",
        meaning: "The tenants' switches, which `p4shield topology` plans. Needed with a `level` above \
                  `baseline`; with `baseline` it means one switch on the host, with the uplink and \
                  the VMs' interfaces. Each VM then needs `interface` and `mac`.",
        keys: TOPOLOGY,
    },
    Table { header: "[[tenant]]", meaning: "A tenant, with a P4 VM of its own.", keys: TENANT },
    Table {
        header: "[tenant.controllers]",
        meaning: "Where controllers reach the preceding tenant's own switch, over TLS with certificates on \
                  both sides. The daemon accepts the connections and passes them on; TLS ends in the \
                  switch. A switch that serves other tenants, too, has no such end points.",
        keys: CONTROLLERS,
    },
    Table { header: "[[tenant.vm]]", meaning: "A user VM of the preceding tenant.", keys: VM },
    Table {
        header: "[[wire]]",
        meaning: "With `attachment = \"wire\"`: a bump between a VM's interface and the switch.",
        keys: WIRE,
    },
    Table {
        header: "[[port]]",
        meaning: "With `attachment = \"dpdk\"` or `\"xsk\"`: a port of the switch, known by name. A port \
                  is a VM's (`tenant` and `vm`) or has a `role`. Ports that are not listed, and not found by \
                  `iface_id`, are shared.",
        keys: PORT,
    },
    Table {
        header: "[[tunnel]]",
        meaning: "With `attachment = \"dpdk\"`: an endpoint where the switch decapsulates packets; \
                  programs judge the inner packet. If the daemon reads Open vSwitch's database, it adds \
                  the endpoints there.",
        keys: TUNNEL,
    },
];

#[rustfmt::skip]
const TOP: &[Key] = &[
    key("attachment", "string", Value("\"wire\""), Words(&["wire", "dpdk", "xsk"]), ALL,
        "How packets reach P4 Shield: `wire`, an AF_XDP bump between a VM's interface and any switch; \
         `dpdk` or `xsk`, a library that is preloaded into a DPDK or AF_XDP switch."),
    key("placement", "string", Value("\"p4vm\""), Words(&["p4vm", "inline"]), ALL,
        "Where programs run: in the tenant's P4 VM, or inside the switch's process, which isolates no \
         tenant and is the baseline for measurements. `inline` needs `dpdk` or `xsk`."),
    key("compartment", "string", Value("\"process\""), Words(&["process", "vm"]), ALL,
        "What isolates the P4 VMs of tenants that do not say otherwise: a sandboxed process, or a \
         [virtual machine](../how-to/virtual-machines.md)."),
    key("tee", "string", Value("\"none\""), Words(&["none", "sev-snp", "tdx"]), ALL,
        "The trusted execution environment of virtual machines: what keeps their memory from the host. It \
         has not been run on such hardware yet."),
    key("level", "string", Value("\"baseline\""), Words(&["baseline", "1", "2", "3"]), ALL,
        "How switches are divided among tenants, as in the MTS paper. `baseline`: one for all; `1`: one for \
         all, in a compartment; `2`: one in a compartment for each tenant, or for each `zone`; `3`: as `2`, \
         and switches forward with DPDK (`datapath`). All but `baseline` need `[topology]`."),
];

#[rustfmt::skip]
const DAEMON: &[Key] = &[
    key("socket", "path", Value("\"/run/p4shield/p4shield.sock\""), PATH, ALL,
        "The UNIX socket where `p4shield status`, `metrics` and `program` connect."),
    key("metrics", "string", Absent("not served"), Text("a loopback address with a port"), ALL,
        "Where the daemon serves [metrics](metrics.md) over HTTP."),
    key("allow_missing", "list of strings", Value("[]"), Words(&MEASURES), ALL,
        "Sandbox measures that the kernel may lack. `p4shield status` shows which are missing."),
    key("guard", "string", Value("\"required\""), Words(&["required", "off"]), &[Wire],
        "Whether a tc filter keeps the host's own network stack off the wires, also while the daemon is \
         down."),
    key("first_uid", "integer", Absent("chosen by the daemon"), Range(1, MAX_FIRST_UID as u64), ALL,
        "The P4 VM of the tenant with index n runs as user `first_uid` + n."),
    key("attach_socket", "path", Value("\"/run/p4shield/attach.sock\""), PATH, SWITCHES,
        "The UNIX socket where the libraries in switches connect."),
    key("switch_uids", "list of integers", Value("[]"), IDS, SWITCHES,
        "Users whose switches may connect, besides root and the daemon's own user."),
    key("switch_gids", "list of integers", Value("[]"), IDS, SWITCHES,
        "Groups whose switches may connect."),
    key("ovsdb", "path", Absent("`/run/openvswitch/db.sock` if a VM has an `iface_id`, otherwise not \
                                 read"), PATH, SWITCHES,
        "The socket of Open vSwitch's database, in which the daemon finds the VM of a port by `iface_id`."),
    key("state", "path", Absent("systemd's `StateDirectory=`; without it, state is kept while the daemon \
                                 runs"), PATH, ALL,
        "The folder for state that outlives the daemon: the lower bounds of log epochs, which keep epochs \
         increasing when the clock is set back, and the programs that commands loaded."),
    key("adoption_time", "duration", Value("\"60s\""), Text("above 0, up to `86400s`"), ALL,
        "How long P4 VMs go on judging after their daemon was killed, so that the next one adopts them."),
];

#[rustfmt::skip]
const MACHINE: &[Key] = &[
    key("image", "path", Value("\"/usr/lib/p4shield/image\""), PATH, ALL,
        "The folder that `p4shield image build` made: kernel and initial file system."),
    key("qemu", "path", Value("\"qemu-system-x86_64\""), PATH, ALL,
        "QEMU's program. A name without a slash is searched in `PATH`."),
    key("accelerator", "string", Value("\"auto\""), Words(&ACCELERATORS), ALL,
        "How QEMU executes instructions: by KVM, by emulation (`tcg`), or by KVM if it runs ordinary guests \
         here."),
    key("processors", "integer", Value("2"), Range(1, MAX_PROCESSORS as u64), ALL,
        "The processors of each virtual machine. One of them judges packets."),
    key("firmware", "path", Absent("`/usr/share/ovmf/OVMF.amdsev.fd` or `OVMF.fd` there"),
        PATH, ALL, "The firmware that a `tee` measures."),
    key("processor", "string", Absent("`EPYC-v4`"), Text("one of QEMU's EPYC models"), ALL,
        "QEMU's model of the processor with `tee = \"sev-snp\"`, which measures it."),
    key("quote_service", "string", Absent("`vsock:2:4050`"), Text("`vsock:CID:PORT` or `unix:/PATH`"), ALL,
        "Where the host's Quote Generation Service listens, with `tee = \"tdx\"`."),
];

#[rustfmt::skip]
const TOPOLOGY: &[Key] = &[
    key("uplink", "string", Required, SWITCH_INTERFACE, ALL, "The host's interface to the outside network."),
    key("gateway_mac", "string", Required, MAC, ALL,
        "The Ethernet address of the outside network's router, to which packets of VMs leave."),
    key("host", "integer", Value("0"), Range(0, MAX_HOST as u64), ALL,
        "The host's number. Hosts in one outside network need different ones: their switches' \
         Ethernet addresses contain it."),
    key("cores", "string", Value("\"shared\""), Words(&["shared", "isolated"]), ALL,
        "`shared`: all switch compartments run on the host's last core; `isolated`: each has a core of its \
         own, which is none of a P4 VM's (`cpu`)."),
    key("switch", "string", Value("\"ovs\""), Words(&["ovs", "p4"]), ALL,
        "The switch of each compartment, or of the host at the baseline: `ovs`: a stock Open vSwitch; `p4`: \
         a P4 switch (`p4shield switch`) with AF_XDP sockets, in the sandbox of a P4 VM."),
    key("datapath", "string", Absent("`sockets`, and `dpdk` at level `3`"),
        Words(&["sockets", "dpdk"]), ALL,
        "How switches receive and send: `sockets`: by packet sockets; `dpdk`: by DPDK, in a thread that \
         polls and sleeps for microseconds between packets if the core is shared. Needs an Open vSwitch with \
         DPDK (`openvswitch-switch-dpdk`). P4 switches have AF_XDP sockets."),
    key("nic_switch", "string",
        Absent("`tc`; `xdp` with `switch = \"p4\"`, and before Linux 6.6 or without BTF"),
        Words(&["tc", "xdp", "bridge", "sriov"]), ALL,
        "What passes frames between VMs, switches and uplink above the baseline. `tc`: a program on each \
         port, in traffic control; `xdp`: the same in XDP, which drops a flood from the network at less \
         cost, and passes less between interfaces of the host; `bridge`: the kernel's bridge and nftables, \
         which need `CONFIG_BRIDGE_VLAN_FILTERING`, Linux 5.18, the program `nft`, and \
         `net.bridge.bridge-nf-call-*` at 0; `sriov`: the switch of the uplink's network card, between \
         virtual functions."),
    key("outside_vlan", "integer", Absent("required with `nic_switch = \"sriov\"`"),
        Range(0, MAX_VLAN as u64 - 1), ALL,
        "The VLAN in which a network card puts switches' sides to the outside, below `first_vlan`; `0`: \
         none, and a switch that was taken over may ask the card for tenants' VLANs."),
    key("compartment", "string", Value("\"process\""), Words(&["process", "vm"]), ALL,
        "What isolates the switches above the baseline: a sandboxed process, or a virtual machine with Open \
         vSwitch in it. QEMU is that of `[machine]`."),
    key("image", "path", Value("\"/usr/lib/p4shield/tenant-switch-image\""), PATH, ALL,
        "The folder of the image of virtual machines, made by `p4shield image build --tenant-switch`."),
    key("first_vlan", "integer", Value("100"), Range(1, MAX_VLAN as u64), ALL,
        "The VLAN of the first tenant in the NIC switch; each further tenant has one of its own, up to \
         4094, or 4093 in a bridge."),
    key("memory", "size", Absent("`128MiB`; `192MiB` with P4 switches; `256MiB` with DPDK or machines"),
        Text("at least `32MiB`; `96MiB` with P4 switches; `192MiB` with DPDK or machines"), ALL,
        "The memory of each switch compartment."),
    key("huge_pages", "size", Absent("none"), Text("at least `96MiB`"), ALL,
        "Huge pages of each switch with DPDK, beside its memory, for its packet buffers. The host must have \
         reserved them (`vm.nr_hugepages`)."),
    key("state", "path", Value("\"/var/lib/p4shield/topology\""), PATH, ALL,
        "The folder that has what was applied."),
    key("run", "path", Value("\"/run/p4shield/topology\""), PATH, ALL,
        "The folder of the switch compartments' sockets."),
];

#[rustfmt::skip]
const TENANT: &[Key] = &[
    key("name", "string", Required, NAME, ALL, "The tenant's name, unique in the file."),
    key("compartment", "string", Absent("that of the whole file"), Words(&["process", "vm"]), ALL,
        "What isolates this tenant's P4 VM."),
    key("tee", "string", Absent("that of the whole file, for a virtual machine"),
        Words(&["none", "sev-snp", "tdx"]), ALL, "The trusted execution environment of this tenant's P4 VM."),
    key("zone", "string", Absent("a switch compartment of its own"), NAME, ALL,
        "With `[topology]` and level `2`: tenants of one zone share a switch compartment."),
    key("key_file", "path", Absent("no key, no pages"), PATH, ALL,
        "The key of the tenant's VMs, made by `p4shield keygen`, with mode 0600. Agent and auditor in each \
         VM have the same key."),
    key("evidence", "string", Value("\"tee\""), Words(&["tee", "sample"]), ALL,
        "What the P4 VM presents in handshakes: evidence of its `tee`, or nothing (\"not attested\")."),
    key("key_window", "duration", Value("\"10m\""), Text("above 0, up to `24h`"), ALL,
        "The time after a rotation in which the previous key is accepted, too; see \
         [keys](../how-to/keys.md)."),
    key("bundle_key", "path", Absent("programs come as objects"), PATH, ALL,
        "The public key that signs the tenant's bundles; the P4 VM then runs no other program."),
    key("socket", "path", Absent("none"), PATH, ALL,
        "The UNIX socket where the tenant sees its own VMs and replaces its own programs, and nothing else: \
         see [tenants' sockets](../how-to/tenant-socket.md)."),
    key("socket_uids", "list of integers", Value("[]"), IDS, ALL,
        "Users that may connect there, besides root and the daemon's own user."),
    key("socket_gids", "list of integers", Value("[]"), IDS, ALL, "Groups that may connect there."),
    key("fail", "string", Value("\"drop\""), Words(&["drop", "pass"]), ALL,
        "The policy for packets without a verdict at the deadline, while the P4 VM does not run, and while a \
         configured program does not run: it is missing or refused."),
    key("no_program", "string", Value("\"pass\""), Words(&["pass", "drop", "skip"]), ALL,
        "What happens to packets of a direction without a program: the P4 VM passes or drops them; with \
         `skip` they bypass the P4 VM and its log if there is no program when the daemon starts."),
    key("deadline", "duration", Value("\"200ms\""), Text("above 0, up to `10s`"), ALL,
        "The longest time for which the mediator holds a packet. A P4 VM that waits for its time slice is \
         healthy: only one that hangs should miss the deadline."),
    key("stall", "duration", Value("\"5s\""), Text("above 0, up to `60s`"), ALL,
        "The time without an answer after which the daemon restarts the P4 VM."),
    key("max_held", "integer", Value("4096"), Range(1, 1 << 16), ALL,
        "The most packets held in each direction of a VM."),
    key("header_bytes", "integer", Value("128"), Range(14, MAX_HEADER_BYTES as u64), ALL,
        "The number of bytes of a packet that its program sees."),
    key("headroom", "integer", Value("128"), Range(0, MAX_HEADROOM as u64), ALL,
        "The number of bytes by which a program may grow a packet at its front."),
    key("slots", "integer", Value("4096"), Range(2, MAX_SLOTS as u64), ALL,
        "The most requests in a channel; a power of two."),
    key("age_limit", "duration", Value("\"500ms\""), Text("above 0, up to `3600s`"), ALL,
        "The age after which in-VM information is stale, and unknown to programs."),
    key("log_interval", "duration", Value("\"100ms\""), Text("above 0, up to `60s`"), ALL,
        "The time between two records on the log page."),
    key("budget", "integer", Value("262144"), Range(1 << 12, 1 << 32), ALL,
        "The most instructions that a program may execute for one packet. Helpers count by what they touch."),
    key("memory", "size", Value("\"2GiB\""), Text("at least `64MiB`"), ALL,
        "The address space of the P4 VM, and the memory limit of its cgroup; the memory of its virtual \
         machine, at least `192MiB`."),
    key("cpu_percent", "integer", Absent("no limit"), Range(1, 100_000), ALL,
        "The CPU limit of the P4 VM's cgroup, in percent of a core."),
    key("cpu", "integer", Absent("any core on which no switch polls"), Range(0, MAX_CPU as u64), ALL,
        "The core of the thread that judges packets, or of the virtual machine."),
    key("busy", "boolean", Value("false"), BOOLEAN, ALL,
        "`true`: the P4 VM polls and never sleeps; only for a P4 VM with a core of its own."),
    key("delay", "duration", Absent("none"), Text("above 0, up to `10ms`"), ALL,
        "For measurements: an artificial delay for each packet, as of a slow program."),
];

#[rustfmt::skip]
const CONTROLLERS: &[Key] = &[
    key("ovsdb", "string", Absent("no end point"), END_POINT, ALL,
        "Where the host accepts connections to the switch's database, usually port 6640 of an address in \
         the management network."),
    key("openflow", "string", Absent("no end point"), END_POINT, ALL,
        "Where it accepts connections of OpenFlow controllers, usually port 6653."),
    key("private_key", "path", Required, PATH, ALL,
        "The switch's private key in PEM, such as `sc-privkey.pem` of `ovs-pki`. The switch gets a copy."),
    key("certificate", "path", Required, PATH, ALL,
        "The switch's certificate in PEM, such as `sc-cert.pem`."),
    key("ca_certificate", "path", Required, PATH, ALL,
        "The certificates in PEM by which controllers' certificates must be signed, such as \
         `controllerca/cacert.pem`; several for several authorities."),
];

#[rustfmt::skip]
const VM: &[Key] = &[
    key("name", "string", Required, NAME, ALL, "The VM's name, unique among the tenant's VMs."),
    key("addresses", "list of strings", Required, Text("IP addresses without prefix lengths"), ALL,
        "The VM's addresses, by which the mediator finds the VM of a packet."),
    key("interface", "string", Absent("required with `[topology]`"), SWITCH_INTERFACE, ALL,
        "The host's side of the VM's veth pair or tap."),
    key("mac", "string", Absent("required with `[topology]`"), MAC, ALL,
        "The Ethernet address of the VM's interface, unique over all VMs."),
    key("packet_rate", "integer", Absent("no limit"), Range(1, MAX_PACKET_RATE as u64), ALL,
        "With `[topology]` above the baseline: packets that the NIC switch takes from the VM in a \
         second, each of those into which the host divides longer ones. Those of 10 ms, and 64 at least, may \
         come at once, and then one more, which may be a longer one."),
    key("ingress", "list of paths", Value("[]"), OBJECTS, ALL, "The program for packets to the VM; empty: \
        none."),
    key("egress", "list of paths", Value("[]"), OBJECTS, ALL, "The program for packets from the VM; \
        empty: none."),
    key("bundle", "path", Absent("none"), PATH, ALL, "The signed bundle with the programs of both \
        directions; in place of `ingress` and `egress`, for a tenant with a `bundle_key`."),
    key("key", "string", Value("\"file\""), Words(&["file", "handshake"]), ALL,
        "Where the VM's key comes from; see [handshakes](../how-to/handshake.md)."),
    key("handshake_page", "path", Absent("none"), PATH, ALL, "The page of handshakes."),
    key("agent_key", "string", Absent("none"), Text("64 hexadecimal digits, or `any`"), ALL,
        "The public key that the agent must have in handshakes, as `p4shield key public` prints it."),
    key("key_file", "path", Absent("the tenant's"), PATH, ALL,
        "The VM's own key, in place of the tenant's. The VM's key opens nothing of the tenant's other VMs."),
    key("info_page", "path", Absent("none"), PATH, ALL,
        "The info page, to which the agent in the VM publishes. The VM needs a key."),
    key("log_page", "path", Absent("none"), PATH, ALL,
        "The log page, which the auditor in the VM reads. The VM needs a key."),
    key("page_owner", "integer", Absent("the daemon's user"), Text("a user ID"), ALL,
        "The owner of the pages, which have mode 0600."),
    key("iface_id", "string", Absent("none"), VISIBLE, SWITCHES,
        "`external_ids:iface-id` of the VM's interface in Open vSwitch's database, as OVN and OpenStack \
         set it."),
    key("vni", "integer", Absent("none"), Range(0, MAX_VNI as u64), &[Dpdk],
        "The VXLAN or Geneve network identifier of the VM's network; needed if a VM in another network has \
         the same address."),
];

#[rustfmt::skip]
const WIRE: &[Key] = &[
    key("vm_interface", "string", Required, INTERFACE, &[Wire],
        "The VM's interface on the host: a tap, or the host's end of a veth pair."),
    key("switch_interface", "string", Required, INTERFACE, &[Wire],
        "One end of a veth pair, whose other end is a port of the switch."),
    key("tenant", "string", Required, Text("the name of a tenant"), &[Wire], "The tenant of the VM."),
    key("vm", "string", Required, Text("the name of a VM of the tenant"), &[Wire], "The VM."),
    key("others", "string", Value("\"pass\""), Words(&["pass", "drop"]), &[Wire],
        "What happens to packets that no program judges: ARP and neighbour discovery."),
    key("own_addresses_only", "boolean", Value("false"), BOOLEAN, &[Wire],
        "Whether the VM may send packets with its own source addresses only."),
];

#[rustfmt::skip]
const PORT: &[Key] = &[
    key("name", "string", Required, VISIBLE, SWITCHES,
        "The interface in Open vSwitch's database, a DPDK device (`net_af_packet0`), the path of a \
         vhost-user socket, or with `xsk` a network interface."),
    key("tenant", "string", Absent("the port has a `role`"), Text("the name of a tenant"), SWITCHES,
        "The tenant of the VM behind the port."),
    key("vm", "string", Absent("the port has a `role`"), Text("the name of a VM of the tenant"), SWITCHES,
        "The VM behind the port. Packets from the port with other source addresses are dropped as spoofed."),
    key("role", "string", Absent("the port is a VM's"), Words(&["uplink", "shared"]), SWITCHES,
        "`uplink`: packets with a configured VM's source address are dropped as spoofed; `shared`: any \
         source address is allowed except that of a VM with a port of its own."),
    key("sides", "string", Value("\"both\""), Words(&["both", "receive"]), SWITCHES,
        "Only for a VM's port. `both`: egress programs judge what the switch receives at the port, \
         ingress programs what it sends there; `receive`: ingress programs judge packets where they \
         enter the switch. With `dpdk`, only vhost-user ports have both sides; others are as with \
         `receive`."),
    key("zero_copy", "string", Value("\"off\""), Words(&["off", "auto"]), &[Xsk],
        "Only for a VM's port. `auto`: the P4 VM reads packets in the switch's packet memory if it holds \
         packets of this tenant only; otherwise it receives copies of headers."),
];

#[rustfmt::skip]
const TUNNEL: &[Key] = &[
    key("type", "string", Required, Words(&["vxlan", "geneve"]), &[Dpdk], "The protocol."),
    key("address", "string", Absent("any address that is no VM's"), Text("an IP address"), &[Dpdk],
        "The host's address in outer packets."),
    key("port", "integer", Absent("4789 for VXLAN, 6081 for Geneve"), Range(1, 65_535), &[Dpdk], "The UDP \
        port."),
];

/// Returns the page docs/reference/configuration.md.
#[must_use]
pub fn page() -> String {
    let mut text = "# Configuration\n\n\
        <!-- Generated from crates/base/config/src/reference.rs: \
        P4SHIELD_BLESS=1 cargo test -p p4shield-config reference -->\n\n\
        One TOML file configures the host daemon and the switch libraries; \
        [examples/p4shield.toml](../../examples/p4shield.toml)\nis a complete example. An unknown key or \
        an invalid value is an error, and all errors of a file are reported at once,\neach with \
        line, column and remedy.\n\n\
        A duration is an integer with the unit `ns`, `us`, `ms` or `s`; a size is an integer with the \
        unit `KiB`, `MiB`, `GiB` or\nnone for bytes. The column \"attachments\" lists the \
        \
        attachments that a key applies to.\n"
        .to_owned();
    for table in TABLES {
        let title = if table.header.is_empty() {
            "Top-level \
                                                  keys"
                .to_owned()
        } else {
            format!("`{}`", table.header)
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {title}\n\n{}\n\n", table.meaning);
        text.push_str(
            "| key | type | default | allowed values | attachments | meaning \
                       |\n|---|---|---|---|---|---|\n",
        );
        for key in table.keys {
            let attachments = match key.attachments.len() {
                3 => "all".to_owned(),
                _ => key.attachments.iter().map(|a| format!("`{}`", a.name())).collect::<Vec<_>>().join(", "),
            };
            let Key { name, kind, meaning, .. } = key;
            let (default, allowed) = (key.default.text(), key.allowed.text());
            let _ = writeln!(
                text,
                "| `{name}` | {kind} | {default} | {allowed} | {attachments} | \
                                    {meaning} |"
            );
        }
    }
    text
}

impl KeyDefault {
    fn text(self) -> String {
        match self {
            Self::Required => "required".to_owned(),
            Self::Value(value) => format!("`{value}`"),
            Self::Absent(meaning) => meaning.to_owned(),
        }
    }
}

impl Allowed {
    fn text(self) -> String {
        match self {
            Self::Words(words) => words.iter().map(|w| format!("`{w:?}`")).collect::<Vec<_>>().join(", "),
            Self::Range(least, most) => format!("{least} to {most}"),
            Self::Text(text) => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
