//! Room for the packets that wait while the switch has no core.
//!
//! Switches share a core by time slices, of 4 ms where the kernel has 250 ticks a second. Linux gives a
//! packet socket room for 92 frames of 1,500 bytes (`net.core.rmem_default`, 208 KiB), and Open vSwitch asks
//! for no more: with four busy switches on a core, half of the packets were dropped at the sockets.
//!
//! Open vSwitch has no setting for it, so a thread of the compartment's first process takes its packet
//! sockets by `pidfd_getfd` and sets their size. This thread is the only one of the compartment that may.

use super::log::log;
use crate::room::BYTES;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::{Sender, channel};

/// A switch's descriptors are below this number, the limit of a compartment's processes.
const DESCRIPTORS: i32 = 4096;

/// The thread that sets the sizes.
#[derive(Debug)]
pub(super) struct Buffers(Sender<Pid>);

impl Buffers {
    /// Starts the thread, which keeps what the calling one may do now.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, switches) = channel();
        let work = move || {
            for switch in switches {
                match enlarge(switch) {
                    Ok(least) if least < BYTES => log(&format!(
                        "ports hold {least} bytes of packets: set net.core.rmem_max={BYTES} on the host",
                    )),
                    Ok(_) => {}
                    Err(e) => log(&format!("cannot enlarge the receive buffers of the switch's ports: {e}")),
                }
            }
        };
        std::thread::Builder::new().name("buffers".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Enlarges the receive buffers of a switch's ports soon. A failure is in the compartment's log, and
    /// costs packets of a busy core only.
    pub(super) fn enlarge(&self, switch: Pid) {
        // The thread ends with this process.
        let _ = self.0.send(switch);
    }
}

/// Returns the size of the smallest buffer.
fn enlarge(switch: Pid) -> rustix::io::Result<usize> {
    let switch = pidfd_open(switch, PidfdFlags::empty())?;
    let mut least = usize::MAX;
    for number in 0..DESCRIPTORS {
        let descriptor = match pidfd_getfd(&switch, number, PidfdGetfdFlags::empty()) {
            Err(Errno::BADF) => continue,
            taken => taken?,
        };
        // Others are files.
        if sockopt::socket_domain(&descriptor) == Ok(AddressFamily::PACKET) {
            least = least.min(set(descriptor.as_fd())?);
        }
    }
    Ok(least)
}

/// Sets the size of a socket that has less: beyond `net.core.rmem_max` if the process may, as in a machine.
/// Returns what it has then.
fn set(socket: BorrowedFd<'_>) -> rustix::io::Result<usize> {
    if sockopt::socket_recv_buffer_size(socket)? < BYTES {
        sockopt::set_socket_recv_buffer_size_force(socket, BYTES)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, BYTES))?;
    }
    sockopt::socket_recv_buffer_size(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SocketType, socket};

    #[test]
    fn packet_sockets_of_a_process_get_larger_buffers() {
        let open = |family| socket(family, SocketType::DGRAM, None).unwrap();
        let [packets, other] = [AddressFamily::PACKET, AddressFamily::INET].map(open);
        let size = |socket| sockopt::socket_recv_buffer_size(socket).unwrap();
        let before = size(&other);
        assert!(size(&packets) < BYTES, "as `net.core.rmem_default` says");
        assert_eq!(enlarge(rustix::process::getpid()), Ok(2 * BYTES));
        assert_eq!(size(&packets), 2 * BYTES);
        assert_eq!(size(&other), before);
        let gone = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&gone);
        gone.wait_with_output().unwrap();
        assert_eq!(enlarge(pid), Err(Errno::SRCH));
    }
}
