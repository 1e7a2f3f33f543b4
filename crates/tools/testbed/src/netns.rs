//! Network namespaces and the links between them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::run;
use crate::{Error, Result, leftover, wait_until};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A named network namespace, removed on drop.
#[derive(Debug)]
pub struct NetNs {
    name: String,
    file: File,
}

impl NetNs {
    /// Creates a namespace with its loopback up. Its name contains process id, a number and `purpose`.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn create(purpose: &str) -> Result<Self> {
        let name = format!("{}{}-{purpose}", leftover::prefix(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let file = File::open(format!("/run/netns/{name}"))
            .map_err(Error::system(format!("open network namespace {name}")))?;
        let ns = Self { name, file };
        ns.ip("link set lo up")?;
        Ok(ns)
    }

    /// Returns its name in `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs inside.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut c = Command::new(program);
        let file = self.file.try_clone();
        // SAFETY: between fork and exec only setns is called, which is async-signal-safe.
        unsafe {
            c.pre_exec(move || match &file {
                Ok(f) => enter(f),
                Err(e) => Err(io::Error::from(e.kind())),
            });
        }
        c
    }

    /// Runs `ip` inside with these arguments.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn ip(&self, words: &str) -> Result<String> {
        run(self.command("ip").args(words.split_whitespace()))
    }

    /// Runs `f` on a thread inside; its sockets stay in the namespace.
    ///
    /// # Panics
    /// `f` panics, or the kernel refuses entry to the open namespace.
    pub fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|s| {
            s.spawn(|| {
                enter(&self.file).unwrap_or_else(|e| panic!("cannot enter {}: {e}", self.name));
                f()
            })
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }

    /// Creates a veth pair between this namespace and another; both ends are up and take packets.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn veth(&self, here: &str, there: &Self, name_there: &str) -> Result<()> {
        self.ip(&format!(
            "link add {here} type veth peer name {name_there} {}",
            if there.name == self.name { String::new() } else { format!("netns {}", there.name) }
        ))?;
        self.ip(&format!("link set {here} up"))?;
        there.ip(&format!("link set {name_there} up"))?;
        // The kernel activates the first end later, and drops what is sent through it before.
        [(self, here), (there, name_there)].into_iter().try_for_each(|(ns, name)| {
            let is_up = || ns.ip(&format!("link show dev {name}")).is_ok_and(|l| l.contains("state UP"));
            wait_until("the link", 60, is_up)
        })
    }

    /// Disables checksum and segmentation offloads of an interface. A reader of a veth through a packet
    /// socket (`net_af_packet`) would otherwise see incomplete packets.
    ///
    /// # Errors
    /// `ethtool` fails.
    pub fn send_whole_packets(&self, interface: &str) -> Result<()> {
        let words = ["-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        run(self.command("ethtool").args(words)).map(drop)
    }

    /// Makes the kernel add a VLAN tag (protocol 8100, control 6064) to the metadata of each packet that a
    /// socket sends through an interface, as a sender with tag offload does.
    ///
    /// # Errors
    /// `clang` or `tc` is missing or fails.
    pub fn tag_in_metadata(&self, interface: &str) -> Result<()> {
        let folder = leftover::folder("tags")?;
        let [source, object] = ["tags.bpf.c", "tags.o"].map(|name| folder.path().join(name));
        let text = include_str!("tags.bpf.c");
        std::fs::write(&source, text).map_err(Error::system("write a program for tags"))?;
        let arch = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut clang = Command::new("clang");
        run(clang.args(["-O2", "-g", "-target", "bpf", &arch, "-c"]).arg(&source).arg("-o").arg(&object))?;
        run(self.command("tc").args(["qdisc", "add", "dev", interface, "clsact"]))?;
        let filter = ["filter", "add", "dev", interface, "egress", "bpf", "da", "obj"];
        run(self.command("tc").args(filter).arg(&object).args(["sec", "tc"])).map(drop)
    }

    /// Disables IPv6 inside, on links to come too: the kernel then sends no packet of its own (neighbour
    /// discovery, group membership) while a link comes up.
    ///
    /// # Errors
    /// The kernel lacks IPv6.
    pub fn disable_ipv6(&self) -> Result<()> {
        let set = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        self.inside(set).map_err(Error::system("disable IPv6"))
    }

    /// Sets TCP's congestion control algorithm inside; the machine's own setting stays.
    ///
    /// # Errors
    /// The kernel lacks the algorithm.
    pub fn congestion_control(&self, algorithm: &str) -> Result<()> {
        let set = || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", algorithm);
        let what = format!(
            "set the congestion control {algorithm} (see /proc/sys/net/ipv4/tcp_available_congestion_control)"
        );
        self.inside(set).map_err(Error::system(what))
    }
}

impl Drop for NetNs {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("ip").args(["netns", "del", &self.name])) {
            tracing::warn!(%error, "left a network namespace behind");
        }
    }
}

fn enter(ns: &File) -> io::Result<()> {
    move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network)).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn linked_namespaces_reach_each_other_only() {
        if let Err(why) = crate::usable() {
            p4shield_need::skip("machine", why);
            return;
        }
        let (a, b) = (NetNs::create("a").unwrap(), NetNs::create("b").unwrap());
        a.veth("left", &b, "right").unwrap();
        a.ip("addr add 10.9.0.1/24 dev left").unwrap();
        b.ip("addr add 10.9.0.2/24 dev right").unwrap();
        let listener = b.inside(|| std::net::TcpListener::bind("10.9.0.2:0").unwrap());
        let to = listener.local_addr().unwrap();
        a.inside(|| std::net::TcpStream::connect(to).unwrap());
        assert!(std::net::TcpListener::bind(to).is_err(), "the address exists only inside");
        let names = [a.name().to_owned(), b.name().to_owned()];
        drop((a, b));
        for n in names {
            assert!(!Path::new("/run/netns").join(n).exists());
        }
    }
}
