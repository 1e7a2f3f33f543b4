//! The rows of the monitored tables, as parsed from messages: [`crate::message`] fills them,
//! [`crate::tables`] keeps them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::value::{Keys, Opt, Refs, Texts, Uuid};

/// Changes of tables, by row.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Updates {
    #[serde(rename = "Open_vSwitch")]
    pub(crate) root: Rows<Root>,
    #[serde(rename = "Bridge")]
    pub(crate) bridges: Rows<Bridge>,
    #[serde(rename = "Port")]
    pub(crate) ports: Rows<Port>,
    #[serde(rename = "Interface")]
    pub(crate) interfaces: Rows<Interface>,
}

/// Rows by UUID in their present state; `None` for a deleted row.
#[derive(Debug)]
pub(crate) struct Rows<T>(pub(crate) Vec<(Uuid, Option<T>)>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The change of a row. `old` is not read, as `new` has every column (RFC 7047, section 4.1.6).
#[derive(Deserialize)]
struct Change<T> {
    new: Option<T>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rows<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Rows<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rows by uuid")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rows<T>, A::Error> {
                let mut rows = Vec::new();
                while let Some((uuid, Change { new })) = map.next_entry()? {
                    rows.push((uuid, new));
                }
                Ok(Rows(rows))
            }
        }
        from.deserialize_map(V(PhantomData))
    }
}

macro_rules! keys {
    ($name:ident, $($key:literal),+) => {
        /// The entries of a column that are kept.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name;
        impl Keys for $name {
            const KEYS: &'static [&'static str] = &[$($key),+];
        }
    };
}

keys!(RootConfig, "hw-offload", "dpdk-init", "dpdk-extra");
keys!(RootIds, "ovn-encap-ip");
keys!(ExternalIds, "iface-id");
keys!(Options, "dpdk-devargs", "vhost-server-path", "local_ip", "dst_port");
keys!(Status, "port_no", "socket");

/// The row of the table Open_vSwitch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Root {
    pub(crate) other_config: Texts<RootConfig>,
    pub(crate) external_ids: Texts<RootIds>,
}

/// A row of the table Bridge.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Bridge {
    pub(crate) name: Opt<String>,
    pub(crate) datapath_type: Opt<String>,
    pub(crate) ports: Refs,
}

/// A row of the table Port.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) name: Opt<String>,
    pub(crate) interfaces: Refs,
}

/// A row of the table Interface.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Interface {
    pub(crate) name: Opt<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Opt<String>,
    pub(crate) options: Texts<Options>,
    pub(crate) external_ids: Texts<ExternalIds>,
    pub(crate) status: Texts<Status>,
    pub(crate) ofport: Opt<i64>,
    pub(crate) ifindex: Opt<i64>,
    pub(crate) mac_in_use: Opt<String>,
    pub(crate) admin_state: Opt<String>,
    pub(crate) link_state: Opt<String>,
    pub(crate) error: Opt<String>,
}

impl Root {
    /// The columns to request.
    pub(crate) const COLUMNS: [&str; 2] = ["other_config", "external_ids"];
}

impl Bridge {
    /// The columns to request.
    pub(crate) const COLUMNS: [&str; 3] = ["name", "datapath_type", "ports"];
}

impl Port {
    /// The columns to request.
    pub(crate) const COLUMNS: [&str; 2] = ["name", "interfaces"];
}

impl Interface {
    /// The columns to request.
    pub(crate) const COLUMNS: [&str; 11] = [
        "name",
        "type",
        "options",
        "external_ids",
        "status",
        "ofport",
        "ifindex",
        "mac_in_use",
        "admin_state",
        "link_state",
        "error",
    ];
}

/// The memory that a row takes.
pub(crate) trait Weight {
    /// Returns the bytes of its texts and references.
    fn weight(&self) -> usize;
}

impl Weight for Root {
    fn weight(&self) -> usize {
        self.other_config.weight() + self.external_ids.weight()
    }
}

impl Weight for Bridge {
    fn weight(&self) -> usize {
        self.name.weight() + self.datapath_type.weight() + self.ports.weight()
    }
}

impl Weight for Port {
    fn weight(&self) -> usize {
        self.name.weight() + self.interfaces.weight()
    }
}

impl Weight for Interface {
    fn weight(&self) -> usize {
        let texts =
            [&self.name, &self.kind, &self.mac_in_use, &self.admin_state, &self.link_state, &self.error];
        let texts: usize = texts.iter().map(|t| t.weight()).sum();
        texts + self.options.weight() + self.external_ids.weight() + self.status.weight()
    }
}
