//! Telling systemd how the service is (`sd_notify`), without its library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state such as `READY=1` to who started us, if they asked for it with `NOTIFY_SOCKET`.
pub(crate) fn send(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        // A name that begins with @ is in the abstract name space.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let mut text = state.to_owned();
    if state.starts_with("RELOADING") {
        // Type=notify-reload wants to know when.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        text = format!("{state}\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000);
    }
    let sent = address.and_then(|a| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &a));
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot tell systemd {state}");
    }
}
