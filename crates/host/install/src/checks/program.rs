//! The switch's program: whether a library that is loaded into it would be called at all.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::closure::Closure;
use crate::elf::{ElfError, has_dpdk_inside};
use crate::finding::Finding;
use crate::target::is_ovs;
use crate::{Kind, Root, Target};

const CHECK: &str = "program";
/// What DPDK's `rte_eth_rx_burst`, inlined into the application, calls if it was built with callbacks.
const CALLBACKS: &str = "rte_eth_call_rx_callbacks";
/// Debian's and Ubuntu's Open vSwitch with DPDK.
const DEBIAN_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// What to do with a switch into which nothing can be loaded.
const ELSEWISE: &str = "use the distribution's build, which links DPDK dynamically, or the attachment `wire`, which needs nothing of the \
     switch; docs/how-to/attach-dpdk.md tells more";

/// Looks at the program at `path`.
pub(crate) fn program(
    root: &Root,
    kind: Kind,
    target: &Target,
    path: Option<&Path>,
    findings: &mut Vec<Finding>,
) -> Option<Closure> {
    let Some(path) = path else {
        let what = format!("the program that {} runs was not found", target.name());
        findings.push(Finding::problem(CHECK, what, "name it with --program"));
        return None;
    };
    let shown = path.display();
    let linked = match Closure::read(root, path) {
        Ok(linked) => linked,
        Err(ElfError::NotElf) => {
            let remedy = "name the program that it starts with --program";
            findings.push(Finding::problem(CHECK, format!("{shown} is a script or no program"), remedy));
            return None;
        }
        Err(error) => {
            findings.push(Finding::problem(
                CHECK,
                format!("{shown} {error}"),
                "install the switch's package again",
            ));
            return None;
        }
    };
    findings.push(if !linked.program.interpreted {
        let what = format!("{shown} is linked statically: no library can be loaded into it");
        Finding::problem(CHECK, what, ELSEWISE)
    } else {
        match kind {
            Kind::Dpdk => dpdk(root, path, &linked),
            Kind::Xsk => xsk(path, &linked),
        }
    });
    let real = root.locate(path).and_then(std::fs::metadata);
    if real.is_ok_and(|meta| meta.mode() & 0o6000 != 0) {
        let what = format!("{shown} is setuid or setgid: the linker ignores LD_PRELOAD");
        let remedy = format!("`chmod ug-s {shown}`, and have the service start it as the right user");
        findings.push(Finding::problem("secure-exec", what, remedy));
    }
    Some(linked)
}

/// A DPDK program: it has to call DPDK's library, and the callbacks.
fn dpdk(root: &Root, path: &Path, linked: &Closure) -> Finding {
    let shown = path.display();
    let ethdev = linked.libraries.keys().find(|name| name.starts_with("librte_ethdev"));
    let Some(ethdev) = ethdev else {
        let inside = root.locate(path).is_ok_and(|at| has_dpdk_inside(&at));
        return match inside {
            true => Finding::problem(CHECK, format!("DPDK is linked statically into {shown}"), ELSEWISE),
            false => without_dpdk(root, path),
        };
    };
    if !linked.calls(CALLBACKS) {
        let what = format!("{shown} was built without receive callbacks (RTE_ETHDEV_RXTX_CALLBACKS)");
        return Finding::problem(CHECK, what, ELSEWISE);
    }
    Finding::good(CHECK, format!("{shown} uses {ethdev} and calls receive callbacks"))
}

fn without_dpdk(root: &Root, path: &Path) -> Finding {
    let what = format!("{} does not use DPDK", path.display());
    let remedy = if !is_ovs(path) {
        "name the program that does with --program; one that loads DPDK as a plugin, as VPP does, has it linked \
         statically: use the attachment `wire`"
            .into()
    } else if root.is_file(Path::new(DEBIAN_DPDK)) {
        format!("choose the build that does: `update-alternatives --set ovs-vswitchd {DEBIAN_DPDK}`")
    } else {
        "install the build that does (Debian and Ubuntu: openvswitch-switch-dpdk)".into()
    };
    Finding::problem(CHECK, what, remedy)
}

/// An AF_XDP program: it has to ask the C library for its sockets, itself, through libxdp or through a driver that
/// DPDK loads while it starts.
fn xsk(path: &Path, linked: &Closure) -> Finding {
    let shown = path.display();
    let by = [("libxdp.so", "libxdp"), ("librte_eal.so", "DPDK, whose driver net_af_xdp opens them")];
    if let Some((_, name)) = by.iter().find(|(library, _)| linked.has_library(library)) {
        return Finding::good(CHECK, format!("{shown} opens AF_XDP sockets by {name}"));
    }
    if linked.calls("socket") && linked.calls("setsockopt") {
        return Finding::good(CHECK, format!("{shown} opens sockets by the C library"));
    }
    let what = format!("{shown} opens no sockets by the C library or libxdp");
    Finding::problem(CHECK, what, "name the program that does with --program, or use the attachment `wire`")
}
