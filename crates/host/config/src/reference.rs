//! The reference of all configuration keys: the only source of docs/reference/configuration.md.
//!
//! The crate's tests check that the page has this content, that the tables list exactly the keys that `file`
//! accepts, and that the defaults and limits below are those of `check`.

use super::Attachment::{self, Dpdk, Wire, Xsk};
use super::check::{MAX_CPU, MAX_FIRST_UID, MAX_VNI};
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
const VISIBLE: Allowed = Text("1 to 107 visible characters");
const OBJECTS: Allowed = Text("paths of object files, which are linked together");
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
    Table { header: "[[tenant]]", meaning: "A tenant, with a P4 VM of its own.", keys: TENANT },
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
    key("compartment", "string", Value("\"process\""), Words(&["process"]), ALL,
        "What isolates a P4 VM: a sandboxed process."),
    key("level", "string", Value("\"baseline\""), Words(&["baseline"]), ALL,
        "How switches are divided among tenants: one switch for all."),
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
const TENANT: &[Key] = &[
    key("name", "string", Required, NAME, ALL, "The tenant's name, unique in the file."),
    key("key_file", "path", Absent("no key, no pages"), PATH, ALL,
        "The key of the tenant's VMs, made by `p4shield keygen`, with mode 0600. Agent and auditor in each \
         VM have the same key."),
    key("key_window", "duration", Value("\"10m\""), Text("above 0, up to `24h`"), ALL,
        "The time after a rotation in which the previous key is accepted, too; see \
         [keys](../how-to/keys.md)."),
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
        "The address space of the P4 VM, and the memory limit of its cgroup."),
    key("cpu_percent", "integer", Absent("no limit"), Range(1, 100_000), ALL,
        "The CPU limit of the P4 VM's cgroup, in percent of a core."),
    key("cpu", "integer", Absent("any core on which no switch polls"), Range(0, MAX_CPU as u64), ALL,
        "The core of the thread that judges packets."),
    key("busy", "boolean", Value("false"), BOOLEAN, ALL,
        "`true`: the P4 VM polls and never sleeps; only for a P4 VM with a core of its own."),
    key("delay", "duration", Absent("none"), Text("above 0, up to `10ms`"), ALL,
        "For measurements: an artificial delay for each packet, as of a slow program."),
];

#[rustfmt::skip]
const VM: &[Key] = &[
    key("name", "string", Required, NAME, ALL, "The VM's name, unique among the tenant's VMs."),
    key("addresses", "list of strings", Required, Text("IP addresses without prefix lengths"), ALL,
        "The VM's addresses, by which the mediator finds the VM of a packet."),
    key("ingress", "list of paths", Value("[]"), OBJECTS, ALL, "The program for packets to the VM; empty: \
        none."),
    key("egress", "list of paths", Value("[]"), OBJECTS, ALL, "The program for packets from the VM; \
        empty: none."),
    key("key_file", "path", Absent("the tenant's"), PATH, ALL,
        "The VM's own key, in place of the tenant's. The VM's key opens nothing of the tenant's other VMs."),
    key("info_page", "path", Absent("none"), PATH, ALL,
        "The info page, to which the agent in the VM publishes. The VM or tenant needs a `key_file`."),
    key("log_page", "path", Absent("none"), PATH, ALL,
        "The log page, which the auditor in the VM reads. The VM or tenant needs a `key_file`."),
    key("page_owner", "integer", Absent("the daemon's user"), Text("a user ID"), ALL,
        "The owner of both pages, which have mode 0600."),
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
        <!-- Generated from crates/host/config/src/reference.rs: \
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
mod tests {
    use super::*;
    use crate::Config;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/etc/p4shield/p4shield.toml"), text).map_err(|e| e.to_string())
    }

    /// Returns a valid file whose `table` has this line, for the first attachment of `key`.
    fn file(table: &Table, key: &Key, line: &str) -> String {
        let attachment = key.attachments[0];
        let at = |header: &str| if table.header == header { line } else { "" };
        // The value of `attachment` itself decides.
        let top = if key.name == "attachment" {
            String::new()
        } else if line == "placement = \"inline\"" {
            "attachment = \"dpdk\"\n".to_owned()
        } else {
            format!("attachment = \"{}\"\n", attachment.name())
        };
        let tenant = "[[tenant]]\nname = \"alice\"\n";
        let is_tenants = key.name == "key_file" && table.header == "[[tenant]]";
        let key_file = if is_tenants { "" } else { "key_file = \"a.key\"\n" };
        let vm = "[[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.2\"]\n";
        let mut text = format!(
            "{top}{}\n[daemon]\n{}\n{tenant}{key_file}{}\n{vm}{}\n",
            at(""),
            at("[daemon]"),
            at("[[tenant]]"),
            at("[[tenant.vm]]")
        );
        text += &match table.header {
            "[[wire]]" => format!(
                "[[wire]]\nvm_interface = \"a\"\nswitch_interface = \"b\"\ntenant = \"alice\"\nvm = \
                 \"web\"\n{line}\n"
            ),
            "[[port]]" if key.name == "role" => format!("[[port]]\nname = \"p\"\n{line}\n"),
            "[[port]]" => format!("[[port]]\nname = \"p\"\ntenant = \"alice\"\nvm = \"web\"\n{line}\n"),
            "[[tunnel]]" if key.name == "type" => format!("[[tunnel]]\n{line}\n"),
            "[[tunnel]]" => format!("[[tunnel]]\ntype = \"geneve\"\n{line}\n"),
            _ => String::new(),
        };
        text
    }

    fn all_keys() -> impl Iterator<Item = (&'static Table, &'static Key)> {
        TABLES.iter().flat_map(|t| t.keys.iter().map(move |k| (t, k)))
    }

    #[test]
    fn the_reference_lists_exactly_the_accepted_keys() {
        for table in TABLES {
            let parent = if table.header == "[[tenant.vm]]" { "[[tenant]]\nname = \"a\"\n" } else { "" };
            // The refusal of an unknown key lists the known ones between backticks.
            let error = parse(&format!("{parent}{}\nunknown_key = 1", table.header)).unwrap_err();
            assert!(error.contains("unknown field `unknown_key`"), "{error}");
            let accepted: BTreeSet<_> = error.split('`').skip(3).step_by(2).collect();
            let tables = ["daemon", "tenant", "wire", "port", "tunnel", "vm"];
            let is_table = |k: &&str| match table.header {
                "" => tables.contains(k),
                "[[tenant]]" => *k == "vm",
                _ => false,
            };
            let accepted: BTreeSet<_> = accepted.into_iter().filter(|k| !is_table(k)).collect();
            let listed: BTreeSet<_> = table.keys.iter().map(|k| k.name).collect();
            assert_eq!(accepted, listed, "{}", table.header);
            assert_eq!(listed.len(), table.keys.len(), "{}: a key is listed twice", table.header);
        }
    }

    #[test]
    fn the_references_defaults_are_those_of_the_parser() {
        for (table, key) in all_keys() {
            let Value(value) = key.default else { continue };
            let without = parse(&file(table, key, "")).unwrap();
            let with = parse(&file(table, key, &format!("{} = {value}", key.name)));
            let with = with.unwrap_or_else(|e| panic!("{} {}: {e}", table.header, key.name));
            assert_eq!(with, without, "{} {}", table.header, key.name);
        }
    }

    #[test]
    fn the_references_limits_are_those_of_the_parser() {
        for (table, key) in all_keys() {
            let result = |value: &str| parse(&file(table, key, &format!("{} = {value}", key.name)));
            match key.allowed {
                Range(least, most) => {
                    for n in [least, most] {
                        result(&n.to_string()).unwrap_or_else(|e| panic!("{} {n}: {e}", key.name));
                    }
                    for n in least.checked_sub(1).into_iter().chain([most + 1]) {
                        assert!(result(&n.to_string()).is_err(), "{} {n}", key.name);
                    }
                }
                Words(words) if key.kind == "string" => {
                    for word in words {
                        result(&format!("{word:?}")).unwrap_or_else(|e| panic!("{} {word}: {e}", key.name));
                    }
                    assert!(result("\"other\"").is_err(), "{}", key.name);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_reference_page_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/configuration.md");
        let generated = page();
        if std::env::var_os("P4SHIELD_BLESS").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == generated,
            "docs/reference/configuration.md differs from crates/host/config/src/reference.rs; run \
             `P4SHIELD_BLESS=1 cargo test -p p4shield-config reference`"
        );
    }
}
