//! Network interfaces by name, in the network namespace of the calling thread.

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The interface's number. A new interface of an old name has a new number.
///
/// # Errors
///
/// When there is none of this name.
pub(crate) fn index(name: &str) -> std::io::Result<u32> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}
