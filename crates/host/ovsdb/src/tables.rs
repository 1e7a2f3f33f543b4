//! A copy of the rows, and the switch that they describe.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::rows::{Bridge, Interface, Port, Root, Rows, Updates, Weight};
use crate::switch::{self, Kind, Mac, Switch};
use crate::value::{Opt, Uuid};

/// Most memory for all rows in bytes: about 100,000 interfaces.
const MAX_WEIGHT: usize = 64 << 20;
/// Memory of a row in bytes besides its texts and references.
const ROW_WEIGHT: usize = 512;

/// The database exceeds the memory limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the database is larger than the limit of {MAX_WEIGHT} bytes")]
pub(crate) struct TooMuch;

/// The rows.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    root: HashMap<Uuid, Root>,
    bridges: HashMap<Uuid, Bridge>,
    ports: HashMap<Uuid, Port>,
    interfaces: HashMap<Uuid, Interface>,
    weight: usize,
}

impl Tables {
    /// Applies changes.
    pub(crate) fn apply(&mut self, updates: Updates) -> Result<(), TooMuch> {
        merge(&mut self.root, updates.root, &mut self.weight)?;
        merge(&mut self.bridges, updates.bridges, &mut self.weight)?;
        merge(&mut self.ports, updates.ports, &mut self.weight)?;
        merge(&mut self.interfaces, updates.interfaces, &mut self.weight)
    }

    /// Returns the switch that the rows describe.
    pub(crate) fn switch(&self) -> Switch {
        let config = |key| self.root.values().find_map(|root| root.other_config.get(key));
        let attachments = self.bridge_ports();
        let mut interfaces: Vec<_> = (self.interfaces.iter())
            .map(|(uuid, row)| interface(row, attachments.get(uuid).cloned().unwrap_or_default()))
            .collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        Switch {
            hw_offload: config("hw-offload") == Some("true"),
            // `try`: the switch continues without DPDK if DPDK fails.
            dpdk: matches!(config("dpdk-init"), Some("true" | "try")),
            dpdk_extra: config("dpdk-extra").map(Into::into),
            encap_ips: self.encap_ips(),
            interfaces,
        }
    }

    /// Returns the host's addresses for OVN's tunnels.
    fn encap_ips(&self) -> Vec<IpAddr> {
        let texts = self.root.values().filter_map(|root| root.external_ids.get("ovn-encap-ip"));
        texts.flat_map(|t| t.split(',')).filter_map(|a| a.trim().parse().ok()).collect()
    }

    /// Returns the port and bridge of each interface.
    fn bridge_ports(&self) -> HashMap<Uuid, BridgePort> {
        let mut bridges = HashMap::new();
        for bridge in self.bridges.values() {
            let attachment = BridgePort {
                port: None,
                bridge: shared(&bridge.name),
                datapath: shared(&bridge.datapath_type),
            };
            bridges.extend(bridge.ports.0.iter().map(|port| (*port, attachment.clone())));
        }
        let mut attachments = HashMap::new();
        for (uuid, port) in &self.ports {
            let mut attachment = bridges.get(uuid).cloned().unwrap_or_default();
            attachment.port = shared(&port.name);
            attachments.extend(port.interfaces.0.iter().map(|interface| (*interface, attachment.clone())));
        }
        attachments
    }
}

/// The port and bridge of an interface.
#[derive(Clone, Default)]
struct BridgePort {
    port: Option<Arc<str>>,
    bridge: Option<Arc<str>>,
    datapath: Option<Arc<str>>,
}

/// Converts a row of the table Interface.
fn interface(row: &Interface, attachment: BridgePort) -> switch::Interface {
    let up = |state: &Opt<String>| state.0.as_deref().map(|s| s == "up");
    let text = |t: Option<&str>| t.filter(|t| !t.is_empty()).map(str::to_owned);
    switch::Interface {
        name: row.name.0.clone().unwrap_or_default(),
        kind: Kind::of(row.kind.0.as_deref().unwrap_or_default()),
        port: attachment.port,
        bridge: attachment.bridge,
        datapath: attachment.datapath,
        iface_id: text(row.external_ids.get("iface-id")),
        dpdk_devargs: text(row.options.get("dpdk-devargs")),
        dpdk_port: row.status.get("port_no").and_then(|n| n.parse().ok()),
        vhost_path: text(row.options.get("vhost-server-path").or_else(|| row.status.get("socket"))),
        // `flow` (set per packet) is read as no address.
        local_ip: row.options.get("local_ip").and_then(|a| a.parse().ok()),
        dst_port: row.options.get("dst_port").and_then(|n| n.parse().ok()),
        ofport: row.ofport.0,
        ifindex: row.ifindex.0.and_then(|n| u32::try_from(n).ok()).filter(|n| *n != 0),
        mac: row.mac_in_use.0.as_deref().and_then(Mac::parse),
        admin_up: up(&row.admin_state),
        link_up: up(&row.link_state),
        error: text(row.error.0.as_deref()),
    }
}

fn shared(text: &Opt<String>) -> Option<Arc<str>> {
    text.0.as_deref().filter(|t| !t.is_empty()).map(Into::into)
}

fn merge<T: Weight>(table: &mut HashMap<Uuid, T>, rows: Rows<T>, weight: &mut usize) -> Result<(), TooMuch> {
    for (uuid, row) in rows.0 {
        let added = row.as_ref().map_or(0, |row| ROW_WEIGHT + row.weight());
        let before = match row {
            Some(row) => table.insert(uuid, row),
            None => table.remove(&uuid),
        };
        *weight = *weight + added - before.map_or(0, |row| ROW_WEIGHT + row.weight());
        if *weight > MAX_WEIGHT {
            return Err(TooMuch);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, parse};

    fn update(tables: &mut Tables, text: &str) -> Result<(), TooMuch> {
        let message = format!(r#"{{"method":"update","params":["p4shield",{text}],"id":null}}"#);
        let Ok(Message::Update(updates)) = parse(message.as_bytes()) else { panic!("no update: {message}") };
        tables.apply(*updates)
    }

    fn uuid(n: u32) -> String {
        format!("00000000-0000-0000-0000-{n:012x}")
    }

    #[test]
    fn rows_become_a_switch() {
        let [root, bridge, port, vhost, dpdk, tunnel] = [1, 2, 3, 4, 5, 6].map(uuid);
        let mut tables = Tables::default();
        let text = format!(
            r#"{{"Open_vSwitch":{{"{root}":{{"new":{{"other_config":["map",[["dpdk-init","true"],["x",
"y"]]],
              "external_ids":["map",[["ovn-encap-ip","192.0.2.7,fd00::7"]]]}}}}}},
            "Bridge":{{"{bridge}":{{"new":{{"name":"br0","datapath_type":"netdev","ports":["uuid",
"{port}"]}}}}}},
            "Port":{{"{port}":{{"new":{{"name":"bond","interfaces":["set",[["uuid","{vhost}"],["uuid",
"{dpdk}"]]]}}}}}},
            "Interface":{{
              "{vhost}":{{"new":{{"name":"vh0","type":"dpdkvhostuserclient","ofport":["set",[]],
"mac_in_use":["set",[]],
                 "options":["map",[["vhost-server-path","/run/vh0"]]],"external_ids":["map",[["iface-id",
"id-1"],["attached-mac","m"]]],
                 "status":["map",[]],"ifindex":0,"admin_state":"up","link_state":"down",
"error":["set",[]]}}}},
              "{dpdk}":{{"new":{{"name":"dpdk0","type":"dpdk","ofport":1,
"mac_in_use":"02:00:00:00:00:01","ifindex":["set",[7]],
                 "options":["map",[["dpdk-devargs","net_null0,x=1"]]],"external_ids":["map",[]],
                 "status":["map",[["port_no","3"]]],"error":"cannot open"}}}},
              "{tunnel}":{{"new":{{"name":"gnv0","type":"geneve",
                 "options":["map",[["local_ip","192.0.2.7"],["dst_port","6082"],["remote_ip",
"flow"]]]}}}}}}}}"#
        );
        update(&mut tables, &text).unwrap();
        let switch = tables.switch();
        assert!(switch.dpdk && !switch.hw_offload);
        let vhost = switch.interface("vh0").unwrap();
        assert_eq!(vhost.kind, Kind::VhostUserClient);
        assert_eq!((vhost.port.as_deref(), vhost.bridge.as_deref()), (Some("bond"), Some("br0")));
        assert_eq!((vhost.datapath.as_deref(), vhost.iface_id.as_deref()), (Some("netdev"), Some("id-1")));
        assert_eq!(
            (vhost.vhost_path.as_deref(), vhost.ofport, vhost.ifindex),
            (Some("/run/vh0"), None, None)
        );
        assert_eq!((vhost.admin_up, vhost.link_up, vhost.mac), (Some(true), Some(false), None));
        let dpdk = switch.interface("dpdk0").unwrap();
        assert_eq!((dpdk.dpdk_device(), dpdk.dpdk_port), (Some("net_null0"), Some(3)));
        assert_eq!((dpdk.ofport, dpdk.ifindex), (Some(1), Some(7)));
        assert_eq!(dpdk.mac, Some(Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!(dpdk.error.as_deref(), Some("cannot open"));
        assert_eq!(switch.interface("dpdk1"), None);
        let tunnel = switch.interface("gnv0").unwrap();
        assert_eq!((&tunnel.kind, tunnel.dst_port), (&Kind::Geneve, Some(6082)));
        assert_eq!(tunnel.local_ip, Some(switch.encap_ips[0]));
        assert_eq!(switch.encap_ips.len(), 2);
    }

    #[test]
    fn changed_rows_are_replaced_and_deleted_rows_removed() {
        let (root, interface) = (uuid(1), uuid(2));
        let mut tables = Tables::default();
        let set = |value: &str| {
            format!(
                r#"{{"Open_vSwitch":{{"{root}":{{"old":{{}},"new":{{"other_config":["map",[["hw-offload",
"{value}"]]]}}}}}}}}"#
            )
        };
        update(&mut tables, &set("true")).unwrap();
        assert!(tables.switch().hw_offload);
        update(&mut tables, &set("false")).unwrap();
        assert!(!tables.switch().hw_offload);
        update(&mut tables, &format!(r#"{{"Interface":{{"{interface}":{{"new":{{"name":"a"}}}}}}}}"#))
            .unwrap();
        let weight = tables.weight;
        update(&mut tables, &format!(r#"{{"Interface":{{"{interface}":{{"new":{{"name":"b"}}}}}}}}"#))
            .unwrap();
        assert_eq!(tables.weight, weight);
        assert!(tables.switch().interface("b").is_some());
        update(&mut tables, &format!(r#"{{"Interface":{{"{interface}":{{"old":{{"name":"b"}}}}}}}}"#))
            .unwrap();
        assert_eq!(tables.switch().interfaces, []);
        update(&mut tables, &format!(r#"{{"Open_vSwitch":{{"{root}":{{"old":{{}}}}}}}}"#)).unwrap();
        assert_eq!(tables.weight, 0);
    }

    #[test]
    fn a_database_beyond_the_limit_is_refused() {
        let mut tables = Tables::default();
        let text = "x".repeat(4000);
        let refused = (0..100_000).find_map(|n| {
            let row = format!(
                r#"{{"Interface":{{"{}":{{"new":{{"name":"{text}","error":"{text}"}}}}}}}}"#,
                uuid(n)
            );
            update(&mut tables, &row).err()
        });
        assert_eq!(refused, Some(TooMuch));
    }
}
