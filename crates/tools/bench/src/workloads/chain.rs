//! The first VM of a tenant as a link of a chain: it sends what comes from outside on to the tenant's other
//! VM, and the answers back (v2v).

use anyhow::Context;
use p4shield_testbed::process::run;

use super::program::Package;
use crate::fixture::cloud::Vm;
use crate::fixture::hosts::INTERFACE;

/// The program for rules of address translation.
pub(super) const NFT: Package = Package { program: "nft", package: "nftables" };

/// Makes `first` forward, with addresses translated: the NIC switch drops packets from addresses that are not
/// the VM's.
pub(super) fn forward(first: &Vm, to: &Vm) -> anyhow::Result<()> {
    let rules = format!(
        "table ip tenant {{
           chain incoming {{
             type nat hook prerouting priority -100;
             iifname {INTERFACE} dnat to {}
           }}
           chain outgoing {{
             type nat hook postrouting priority 100;
             oifname {INTERFACE} snat to {}
           }}
         }}",
        to.address, first.address,
    );
    run(first.ns.command(NFT.path()?).arg(rules))?;
    // Packets leave where they came in: the kernel would tell their sender of a shorter way.
    let mut settings = vec![("ip_forward".to_owned(), "1")];
    settings.extend(["all", INTERFACE].map(|of| (format!("conf/{of}/send_redirects"), "0")));
    first.ns.inside(|| {
        settings.iter().try_for_each(|(name, value)| {
            let file = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&file, value).with_context(|| format!("cannot write {file}"))
        })
    })
}
