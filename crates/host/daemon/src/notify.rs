//! Notifications for systemd (`sd_notify`), without its library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state such as `READY=1` to the service manager, if `NOTIFY_SOCKET` names its socket.
pub(crate) fn send(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        // A leading @ denotes the abstract namespace.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let mut text = state.to_owned();
    if state.starts_with("RELOADING") {
        // Type=notify-reload requires the time.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        text = format!("{state}\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000);
    }
    let sent = address.and_then(|a| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &a));
    if let Err(error) = sent {
        tracing::warn!(event = "notify_failed", %error, "cannot notify systemd of {state}");
    }
}
