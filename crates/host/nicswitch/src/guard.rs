//! Keeps the host's own network stack off interfaces that are ports of a switch on the host.
//!
//! A chain of nftables at each interface's ingress drops all frames. The kernel has given a frame to packet
//! sockets before, such as Open vSwitch's, and gives it to its own protocols after.
//! Open vSwitch removes filters of traffic control from its ports, but no chains.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::NicError;
use crate::nft::Nft;

/// Before other chains.
const PRIORITY: i32 = -500;

/// The guard of interfaces in the network namespace of the thread that calls its functions.
#[derive(Clone, Debug)]
pub struct HostGuard {
    /// The name of the table.
    name: String,
}

impl HostGuard {
    /// Returns the guard that is the table of nftables of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Closes these interfaces, which exist, to the host's stack.
    ///
    /// # Errors
    /// There is no program `nft`, or the kernel refuses the rules: nothing changed.
    pub fn close(&self, interfaces: &BTreeSet<String>) -> Result<(), NicError> {
        let nft = Nft::find(&self.name)?;
        let new: Vec<_> = interfaces.difference(&self.closed(&nft)?).map(|n| self.chain("add", n)).collect();
        if new.is_empty() { Ok(()) } else { nft.execute([vec![self.table("add")], new].concat()) }
    }

    /// Opens all interfaces but these.
    ///
    /// # Errors
    /// Those of [`Self::close`].
    pub fn keep(&self, interfaces: &BTreeSet<String>) -> Result<(), NicError> {
        let nft = Nft::find(&self.name)?;
        let closed = self.closed(&nft)?;
        nft.execute(closed.difference(interfaces).map(|name| self.chain("delete", name)).collect())
    }

    /// Opens all interfaces. Where rules cannot be listed, there are none.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub fn delete(&self) -> Result<(), NicError> {
        let Ok(nft) = Nft::find(&self.name) else { return Ok(()) };
        let is_it = |(kind, table): &(String, Value)| kind == "table" && table["name"] == *self.name;
        let Ok(tables) = nft.list(&["tables", "netdev"]) else { return Ok(()) };
        if tables.iter().any(is_it) { nft.execute(vec![self.table("delete")]) } else { Ok(()) }
    }

    /// Returns the interfaces that have a chain, which goes with its interface.
    fn closed(&self, nft: &Nft<'_>) -> Result<BTreeSet<String>, NicError> {
        let chains = nft.list(&["chains", "netdev"])?;
        let own = chains.iter().filter(|(kind, chain)| kind == "chain" && chain["table"] == *self.name);
        Ok(own.filter_map(|(_, chain)| Some(chain.get("dev")?.as_str()?.to_owned())).collect())
    }

    fn table(&self, action: &str) -> Value {
        json!({action: {"table": {"family": "netdev", "name": self.name}}})
    }

    fn chain(&self, action: &str, interface: &str) -> Value {
        let name = format!("off-{interface}");
        json!({action: {"chain": {
            "family": "netdev", "table": self.name, "name": name, "type": "filter", "hook": "ingress",
            "dev": interface, "prio": PRIORITY, "policy": "drop",
        }}})
    }
}
