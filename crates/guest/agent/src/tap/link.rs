//! Attachment of the tap's programs to an interface.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{self, bpf_link_create_opts};
use libbpf_rs::{Error, Object, Program, TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook};

use super::{Hook, TapError, kernel};

/// `XDP_FLAGS_DRV_MODE`: native XDP only.
const NATIVE: u32 = 1 << 2;

/// An attached program.
pub(super) enum Attached {
    /// Attached by a link, which ends when its descriptor is closed.
    Link { _fd: OwnedFd, place: &'static str },
    /// Attached by a filter of the `clsact` queueing discipline, which is removed on drop.
    Filter { hook: Filter, place: &'static str },
}

/// A filter of `clsact`. Dropping it removes it in the network namespace of the dropping thread.
pub(super) struct Filter(TcHook);

// SAFETY: a `TcHook` consists of numbers (interface, direction, handle, priority); its only pointer names
// another kind of queueing discipline and is null here. It has no state of a thread.
unsafe impl Send for Filter {}

impl std::fmt::Display for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link { place, .. } | Self::Filter { place, .. } => f.write_str(place),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Self::Filter { hook, place } = self
            && let Err(error) = hook.0.detach()
        {
            // A removed interface has lost its filters already.
            tracing::debug!(place, %error, "cannot remove the tap's filter");
        }
    }
}

/// Attaches the programs of both directions.
pub(super) fn attach(object: &Object, index: u32, hook: Hook) -> Result<Vec<Attached>, TapError> {
    let program = |name: &'static str| object.progs().find(|p| p.name() == name).ok_or(TapError::Map(name));
    let ingress = ingress(&program("tap_xdp")?, &program("tap_ingress")?, index, hook);
    let egress = tc(
        &program("tap_egress")?,
        index,
        libbpf_sys::BPF_TCX_EGRESS,
        TC_EGRESS,
        ["egress at tcx", "egress at tc"],
    );
    Ok(vec![ingress.map_err(kernel("attach"))?, egress.map_err(kernel("attach"))?])
}

fn ingress(xdp: &Program<'_>, skb: &Program<'_>, index: u32, hook: Hook) -> Result<Attached, Error> {
    if hook == Hook::Auto {
        match link(xdp, index, libbpf_sys::BPF_XDP, NATIVE) {
            Ok(fd) => return Ok(Attached::Link { _fd: fd, place: "ingress at xdp" }),
            Err(error) => {
                tracing::info!(event = "tap_not_native", %error, "no native XDP: the tap uses tc on ingress")
            }
        }
    }
    tc(skb, index, libbpf_sys::BPF_TCX_INGRESS, TC_INGRESS, ["ingress at tcx", "ingress at tc"])
}

fn tc(
    program: &Program<'_>,
    index: u32,
    tcx: libbpf_sys::bpf_attach_type,
    clsact: TcAttachPoint,
    [modern, classic]: [&'static str; 2],
) -> Result<Attached, Error> {
    match link(program, index, tcx, 0) {
        Ok(fd) => Ok(Attached::Link { _fd: fd, place: modern }),
        // Before Linux 6.6.
        Err(_) => filter(program, index, clsact, classic),
    }
}

fn filter(
    program: &Program<'_>,
    index: u32,
    point: TcAttachPoint,
    place: &'static str,
) -> Result<Attached, Error> {
    let mut hook = TcHook::new(program.as_fd());
    hook.ifindex(index.cast_signed()).attach_point(point);
    // The queueing discipline is not removed later, because other programs may use it.
    hook.create()?;
    Ok(Attached::Filter { hook: Filter(hook.attach()?), place })
}

/// Creates a link between a program and an interface.
fn link(
    program: &Program<'_>,
    index: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> Result<OwnedFd, Error> {
    let options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, flags, ..Default::default() };
    // SAFETY: the descriptor is open during the call, and `options` is valid and contains its own size.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            index.cast_signed(),
            kind,
            &raw const options,
        )
    };
    if fd < 0 {
        return Err(Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use p4shield_testbed::NetNs;

    use super::*;
    use crate::tap::OBJECT;

    /// Tests the attachment of older kernels, which newer kernels do not select.
    #[test]
    fn clsact_filters_are_attached_and_removed() {
        if let Err(why) = p4shield_testbed::usable() {
            p4shield_need::skip("machine", why);
            return;
        }
        let (a, b) = (NetNs::create("agent-clsact").unwrap(), NetNs::create("agent-clsact").unwrap());
        a.veth("eth0", &b, "eth0").unwrap();
        a.inside(|| {
            let object = libbpf_rs::ObjectBuilder::default().open_memory(&OBJECT.0).unwrap().load().unwrap();
            let index = crate::interface::index("eth0").unwrap();
            let program = object.progs().find(|p| p.name() == "tap_egress").unwrap();
            let attached = filter(&program, index, TC_EGRESS, "egress at tc").unwrap();
            let show = || a.command("tc").args(["filter", "show", "dev", "eth0", "egress"]).output().unwrap();
            assert!(String::from_utf8_lossy(&show().stdout).contains("tap_egress"));
            drop(attached);
            assert!(!String::from_utf8_lossy(&show().stdout).contains("tap_egress"));
        });
    }
}
