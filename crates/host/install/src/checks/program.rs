//! Checks of the switch's program: whether it would call a preloaded library at all.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::closure::Closure;
use crate::elf::{ElfError, has_dpdk_inside};
use crate::finding::Finding;
use crate::target::is_ovs;
use crate::{PreloadedAttachment, Root, Target};

const CHECK: &str = "program";
/// The function that `rte_eth_rx_burst`, inlined into the application, calls if DPDK was built with
/// callbacks.
const CALLBACKS: &str = "rte_eth_call_rx_callbacks";
/// Debian's and Ubuntu's Open vSwitch with DPDK.
const DEBIAN_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// The remedy for a switch into which no library can be loaded.
const STATIC_REMEDY: &str = "use the distribution's build, which links DPDK dynamically, or the \
                             attachment `wire`, which \
     requires nothing of the switch; see docs/how-to/attach-dpdk.md";

/// Checks the program at `path`.
pub(crate) fn program(
    root: &Root,
    kind: PreloadedAttachment,
    target: &Target,
    path: Option<&Path>,
    findings: &mut Vec<Finding>,
) -> Option<Closure> {
    let Some(path) = path else {
        let what = format!("the program that {} starts was not found", target.name());
        findings.push(Finding::problem(CHECK, what, "name it with --program"));
        return None;
    };
    let shown = path.display();
    let linked = match Closure::read(root, path) {
        Ok(linked) => linked,
        Err(ElfError::NotElf) => {
            let remedy = "name the program that the script starts with --program";
            findings.push(Finding::problem(CHECK, format!("{shown} is a script or not a program"), remedy));
            return None;
        }
        Err(error) => {
            findings.push(Finding::problem(
                CHECK,
                format!("{shown} {error}"),
                "reinstall the switch's package",
            ));
            return None;
        }
    };
    findings.push(if !linked.program.interpreted {
        let what = format!("{shown} is linked statically, so no library can be preloaded");
        Finding::problem(CHECK, what, STATIC_REMEDY)
    } else {
        match kind {
            PreloadedAttachment::Dpdk => dpdk(root, path, &linked),
            PreloadedAttachment::Xsk => xsk(path, &linked),
        }
    });
    let real = root.locate(path).and_then(std::fs::metadata);
    if real.is_ok_and(|meta| meta.mode() & 0o6000 != 0) {
        let what = format!("{shown} is setuid or setgid: the linker ignores LD_PRELOAD");
        let remedy = format!("run `chmod ug-s {shown}`, and set the user in the service");
        findings.push(Finding::problem("secure-exec", what, remedy));
    }
    Some(linked)
}

/// Checks a DPDK program, which must call DPDK's shared library and receive callbacks.
fn dpdk(root: &Root, path: &Path, linked: &Closure) -> Finding {
    let shown = path.display();
    let ethdev = linked.libraries.keys().find(|name| name.starts_with("librte_ethdev"));
    let Some(ethdev) = ethdev else {
        let inside = root.locate(path).is_ok_and(|at| has_dpdk_inside(&at));
        return match inside {
            true => Finding::problem(CHECK, format!("DPDK is linked statically into {shown}"), STATIC_REMEDY),
            false => without_dpdk(root, path),
        };
    };
    if !linked.calls(CALLBACKS) {
        let what = format!("{shown} was built without receive callbacks (RTE_ETHDEV_RXTX_CALLBACKS)");
        return Finding::problem(CHECK, what, STATIC_REMEDY);
    }
    Finding::good(CHECK, format!("{shown} uses {ethdev} and calls receive callbacks"))
}

fn without_dpdk(root: &Root, path: &Path) -> Finding {
    let what = format!("{} does not use DPDK", path.display());
    let remedy = if !is_ovs(path) {
        "name the program that uses DPDK with --program; a program that loads DPDK as a plugin, such as \
         VPP, links it \
         statically: use the attachment `wire`"
            .into()
    } else if root.is_file(Path::new(DEBIAN_DPDK)) {
        format!("select the build with DPDK: `update-alternatives --set ovs-vswitchd {DEBIAN_DPDK}`")
    } else {
        "install the build with DPDK (Debian and Ubuntu: openvswitch-switch-dpdk)".into()
    };
    Finding::problem(CHECK, what, remedy)
}

/// Checks an AF_XDP program, which must open its sockets with the C library: directly, through libxdp or
/// through DPDK's driver.
fn xsk(path: &Path, linked: &Closure) -> Finding {
    let shown = path.display();
    let by = [("libxdp.so", "libxdp"), ("librte_eal.so", "DPDK, whose driver net_af_xdp opens them")];
    if let Some((_, name)) = by.iter().find(|(library, _)| linked.has_library(library)) {
        return Finding::good(CHECK, format!("{shown} opens AF_XDP sockets with {name}"));
    }
    if linked.calls("socket") && linked.calls("setsockopt") {
        return Finding::good(CHECK, format!("{shown} opens sockets with the C library"));
    }
    let what = format!("{shown} opens no sockets with the C library or libxdp");
    Finding::problem(
        CHECK,
        what,
        "name the program that opens them with --program, or use the attachment `wire`",
    )
}
