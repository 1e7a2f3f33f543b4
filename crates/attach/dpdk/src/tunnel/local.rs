//! The host's own addresses, in the network namespace of the switch: a tunnel without an address of its
//! own ends at each of them.
//!
//! Open vSwitch reads them in the same way, and follows the kernel's notifications (`rtnetlink(7)`) as this
//! module does.

use p4shield_attach::spawn_without_signals;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// The least time between two readings, so that a storm of notifications costs little.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Calls `changed` with the host's addresses: now, and in a thread of its own whenever they change.
/// `None` if they cannot be read.
pub(crate) fn watch(changed: impl Fn(Option<Box<[IpAddr]>>) + Send + Sync + 'static) {
    let changed = Arc::new(changed);
    // Opened before the first reading, so that no change is missed.
    let socket = open();
    changed(addresses().ok());
    let follow = {
        let changed = Arc::clone(&changed);
        move || {
            if let Ok(socket) = socket {
                while wait(&socket) {
                    changed(addresses().ok());
                    std::thread::sleep(PAUSE);
                }
            }
            give_up(&*changed);
        }
    };
    if spawn_without_signals("p4shield-local", follow).is_err() {
        give_up(&*changed);
    }
}

fn give_up(changed: &impl Fn(Option<Box<[IpAddr]>>)) {
    tracing::warn!(
        event = "host_addresses_lost",
        "the host's addresses cannot be followed: what VMs send to any machine's tunnel ports is dropped"
    );
    changed(None);
}

/// Opens a socket that becomes readable when addresses change.
fn open() -> io::Result<OwnedFd> {
    // SAFETY: the function takes any arguments; the result is checked and ours alone.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let groups = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    // SAFETY: a `sockaddr_nl` may be all zeros.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups as u32;
    // SAFETY: the address is a `sockaddr_nl` of the length that is passed.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Waits for a change. Returns false if there will be none.
fn wait(socket: &OwnedFd) -> bool {
    let mut buffer = [0_u8; 4096];
    // Messages that did not fit (`ENOBUFS`) are changes, too: what they say is not read.
    loop {
        // SAFETY: the buffer has the length that is passed.
        let read = unsafe {
            libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_TRUNC)
        };
        match io::Error::last_os_error().raw_os_error() {
            _ if read >= 0 => return read > 0,
            Some(libc::EINTR) => {}
            Some(libc::ENOBUFS) => return true,
            _ => return false,
        }
    }
}

/// Reads the addresses of all interfaces, in order.
fn addresses() -> io::Result<Box<[IpAddr]>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the function stores a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = BTreeSet::new();
    let mut next: *const libc::ifaddrs = first;
    // SAFETY: the list's entries are valid until it is freed; an address has the type that its family says.
    unsafe {
        while let Some(entry) = next.as_ref() {
            if let Some(address) = entry.ifa_addr.as_ref() {
                found.extend(ip(address));
            }
            next = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(found.into_iter().collect())
}

/// Returns the IP address in a socket address.
///
/// # Safety
/// It is of the type that its family says.
unsafe fn ip(address: &libc::sockaddr) -> Option<IpAddr> {
    let at = std::ptr::from_ref(address);
    // SAFETY: as the caller promises. Unaligned, since `sockaddr` is aligned to two bytes only.
    unsafe {
        match i32::from(address.sa_family) {
            libc::AF_INET => {
                let v4 = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let v6 = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_testbed::{NetNs, usable, wait_until};
    use std::sync::Mutex;

    #[test]
    fn the_hosts_addresses_are_known_and_followed() {
        if let Err(why) = usable() {
            p4shield_need::skip("machine", why);
            return;
        }
        let host = NetNs::create("host").unwrap();
        host.ip("addr add 192.0.2.7/24 dev lo").unwrap();
        let seen: Arc<Mutex<Option<Box<[IpAddr]>>>> = Arc::default();
        let store = Arc::clone(&seen);
        host.inside(|| watch(move |addresses| *store.lock().unwrap() = addresses));
        let has = |address: &str| {
            let seen = seen.lock().unwrap();
            seen.as_ref().is_some_and(|all| all.binary_search(&address.parse().unwrap()).is_ok())
        };
        assert!(has("192.0.2.7"), "before anything can be sent to it");
        for address in ["192.0.2.8", "2001:db8::8"] {
            host.ip(&format!("addr add {address} dev lo")).unwrap();
            wait_until("the new address", 10, || has(address)).unwrap();
            host.ip(&format!("addr del {address} dev lo")).unwrap();
            wait_until("the end of the address", 10, || !has(address)).unwrap();
        }
    }
}
