//! The table `[tenant.controllers]`: where controllers reach the tenant's own switch, over TLS.

use super::check::Checker;
use super::file::{self, Text};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The end points of a tenant's switch for controllers. TLS ends in the switch, which has these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers {
    /// Where the host accepts connections to the switch's database (OVSDB); `None`: nowhere.
    pub ovsdb: Option<SocketAddr>,
    /// Where it accepts connections of OpenFlow controllers; `None`: nowhere.
    pub openflow: Option<SocketAddr>,
    /// The file of the switch's private key, in PEM.
    pub private_key: PathBuf,
    /// The file of the switch's certificate, in PEM.
    pub certificate: PathBuf,
    /// The file of the certificates, in PEM, by which the controllers' are signed.
    pub ca_certificate: PathBuf,
}

impl Checker<'_> {
    pub(super) fn controllers(&mut self, table: &file::Controllers) -> Controllers {
        let place = table.private_key.span();
        if table.ovsdb.is_none() && table.openflow.is_none() {
            let message = "controllers: there is no end point; write ovsdb, openflow, or both, or remove \
                           the table";
            self.problem(place, message.to_owned());
        }
        Controllers {
            ovsdb: table.ovsdb.as_ref().and_then(|text| self.end_point("ovsdb", text)),
            openflow: table.openflow.as_ref().and_then(|text| self.end_point("openflow", text)),
            private_key: self.place(&table.private_key),
            certificate: self.place(&table.certificate),
            ca_certificate: self.place(&table.ca_certificate),
        }
    }

    /// Parses an address where the host accepts connections.
    fn end_point(&mut self, key: &str, text: &Text) -> Option<SocketAddr> {
        let example = if key == "ovsdb" { "192.0.2.1:6640" } else { "192.0.2.1:6653" };
        let parsed = text.as_ref().parse::<SocketAddr>().ok();
        let problem = match parsed {
            Some(address) if address.port() == 0 => "has no port",
            Some(address) if address.ip().is_multicast() => "is an address of many machines",
            Some(address) => return Some(address),
            None => "is not an IP address with a port",
        };
        let message = format!("{key}: {:?} {problem}; write for example {key} = {example:?}", text.as_ref());
        self.problem(text.span(), message);
        None
    }

    /// Checks that no two end points have one address, and that there are switches to which they lead.
    pub(super) fn end_points(&mut self, file: &file::File) {
        let mut seen = HashMap::new();
        for table in file.tenant.iter().filter_map(|t| t.controllers.as_ref()) {
            if file.topology.is_none() {
                let message = "controllers: only tenants' switches have end points for controllers, and \
                               there is no table [topology]; write the table, or remove \
                               [tenant.controllers]";
                self.problem(table.private_key.span(), message.to_owned());
            }
            for (key, text) in [("ovsdb", &table.ovsdb), ("openflow", &table.openflow)] {
                let Some(text) = text else { continue };
                let Ok(address) = text.as_ref().parse::<SocketAddr>() else { continue };
                let line = self.line(text.span());
                if let Some(first) = seen.get(&address) {
                    let message = format!("{key}: {address} is in line {first} already; write another port");
                    self.problem(text.span(), message);
                } else {
                    seen.insert(address, line);
                }
            }
        }
    }
}
