//! Attaching the tap's programs to an interface.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{self, bpf_link_create_opts};
use libbpf_rs::{Error, Object, Program, TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook};

use super::{Hook, TapError, kernel};

/// `XDP_FLAGS_DRV_MODE`: native or not at all.
const NATIVE: u32 = 1 << 2;

/// One attached program.
pub(super) enum Attached {
    /// Through a link: gone when the descriptor is closed.
    Link { _fd: OwnedFd, place: &'static str },
    /// Through a filter of the `clsact` queueing discipline: taken away on drop.
    Filter { hook: Filter, place: &'static str },
}

/// A filter of `clsact`. It is taken away by its numbers, in the network namespace of the thread that drops it.
pub(super) struct Filter(TcHook);

// SAFETY: a `TcHook` is numbers (interface, direction, handle, priority); its only pointer names a queueing discipline
// of another kind and is null here. Nothing in it belongs to a thread.
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
            // An interface that is gone took its filters with it.
            tracing::debug!(place, %error, "the tap's filter could not be taken away");
        }
    }
}

/// Attaches both directions.
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
            Err(error) => tracing::info!(%error, "no native XDP here; the tap takes tc on ingress"),
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
        // A kernel before 6.6.
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
    // The queueing discipline stays when we go: others may have come to use it.
    hook.create()?;
    Ok(Attached::Filter { hook: Filter(hook.attach()?), place })
}

/// A link between a program and an interface.
fn link(
    program: &Program<'_>,
    index: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> Result<OwnedFd, Error> {
    let options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, flags, ..Default::default() };
    // SAFETY: the descriptor is open for the call, and `options` is a valid structure of the size that it names.
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

    /// The way of older kernels, which this one would not take by itself.
    #[test]
    fn filters_of_clsact_attach_and_go() {
        if let Err(why) = p4shield_testbed::usable() {
            println!("skipped: {why}");
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
