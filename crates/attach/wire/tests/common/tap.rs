//! A tap device, as a virtual machine monitor uses it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use p4shield_testbed::NetNs;

/// Bytes of `struct virtio_net_hdr` in front of each frame.
const VNET_HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;

pub struct Tap {
    file: File,
}

impl Tap {
    /// Creates `name` in `ns`, which exists until the last of its queues is dropped, or opens another
    /// queue of it if both are multi-queue.
    pub fn create(ns: &NetNs, name: &str, several: bool) -> Self {
        let several = if several { libc::IFF_MULTI_QUEUE } else { 0 };
        let file = ns.inside(|| {
            let file = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
            // SAFETY: a plain system call on a live `ifreq`.
            let made = unsafe {
                let mut request: libc::ifreq = std::mem::zeroed();
                for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
                    *to = from as libc::c_char;
                }
                request.ifr_ifru.ifru_flags =
                    (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several) as i16;
                libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request)
            };
            assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
            file
        });
        rustix::io::ioctl_fionbio(&file, true).unwrap();
        ns.ip(&format!("link set {name} up")).unwrap();
        Self { file }
    }

    /// Sends a frame as a guest with checksum offload does; `checksum` is the offset of the partial
    /// checksum.
    pub fn send(&mut self, frame: &[u8], segment: u16, checksum: u16) {
        let mut header = [0; VNET_HEADER];
        header[0] = NEEDS_CHECKSUM;
        header[6..8].copy_from_slice(&segment.to_ne_bytes());
        header[8..10].copy_from_slice(&(checksum - segment).to_ne_bytes());
        self.file.write_all(&[&header[..], frame].concat()).unwrap();
    }

    /// Returns the first frame that `wanted` accepts, or `None` after ten seconds.
    pub fn find(&mut self, mut wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + Duration::from_secs(10);
        let mut buffer = vec![0; 65536];
        while Instant::now() < end {
            match self.file.read(&mut buffer) {
                Ok(n) if wanted(&buffer[VNET_HEADER..n]) => return Some(buffer[VNET_HEADER..n].to_vec()),
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Err(e) => panic!("reading the tap: {e}"),
            }
        }
        None
    }
}
