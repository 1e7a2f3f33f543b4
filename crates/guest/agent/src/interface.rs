//! Network interfaces by name, in the network namespace of the calling thread.

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Returns the interface's index. A re-created interface has a new index.
///
/// # Errors
///
/// If no interface has this name.
pub(crate) fn index(name: &str) -> std::io::Result<u32> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}
