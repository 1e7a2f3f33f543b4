//! Starts QEMU with nothing but its channels, and gives up this process's own privileges.
//!
//! QEMU executes what the guest wants, so it is confined as a P4 VM in a process is: a user of the
//! tenant's own, no capability and no way to gain one, network, IPC and UTS namespaces without anything
//! in them (but the taps of a P4 switch), and QEMU's own system call filter. `unshare`, `nsenter` and
//! `setpriv` of util-linux, which every Debian has, do what a process does between fork and exec. QEMU is
//! killed when this process ends, however that happens, and cannot renounce it (`last_signal`).

use crate::command::{Lines, Machine, arguments};
use crate::error::VmmError;
use crate::last_signal;
use rustix::io::FdFlags;
use rustix::process::{DumpableBehavior, Gid, Uid};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where QEMU finds programs.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// QEMU, and this process's ends of its channels.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) console: UnixStream,
    pub(crate) messages: UnixStream,
    pub(crate) rings: UnixStream,
    pub(crate) qmp: OwnedFd,
}

/// Starts QEMU as user `uid`, if this process is root's. Called while the process has one thread.
pub(crate) fn launch(machine: &Machine, uid: u32) -> Result<Launched, VmmError> {
    let [console, messages, rings, qmp] = [pair()?, pair()?, pair()?, pair()?];
    let lines = Lines {
        console: inherit(&console.1)?,
        messages: inherit(&messages.1)?,
        rings: inherit(&rings.1)?,
        qmp: inherit(&qmp.1)?,
    };
    let child = spawn(machine, uid, None, |machine| arguments(machine, &lines))?;
    Ok(Launched { child, console: console.0, messages: messages.0, rings: rings.0, qmp: qmp.0.into() })
}

/// Returns a channel to QEMU.
pub(crate) fn pair() -> Result<(UnixStream, UnixStream), VmmError> {
    UnixStream::pair().map_err(VmmError::Descriptors)
}

/// Lets QEMU inherit a descriptor, whose number it returns. This process starts no other one meanwhile.
pub(crate) fn inherit(fd: impl AsFd) -> Result<RawFd, VmmError> {
    let fd = fd.as_fd();
    rustix::io::fcntl_setfd(fd, FdFlags::empty()).map_err(|e| VmmError::Descriptors(e.into()))?;
    Ok(fd.as_raw_fd())
}

/// Starts QEMU with the arguments that a machine needs whose files it has inherited, in this network
/// namespace or in one without interfaces.
pub(crate) fn spawn(
    machine: &Machine,
    uid: u32,
    network: Option<BorrowedFd<'_>>,
    arguments: impl FnOnce(&Machine) -> Vec<String>,
) -> Result<Child, VmmError> {
    let (kernel, initramfs) = (inherited(&machine.kernel)?, inherited(&machine.initramfs)?);
    let machine = Machine { kernel: path_of(&kernel), initramfs: path_of(&initramfs), ..machine.clone() };
    let network = network.map(inherit).transpose()?;
    let words = confinement(&machine, uid, network);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(&machine.qemu).args(arguments(&machine));
    command.env_clear().env("PATH", PATH);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    last_signal::keep()?;
    command.spawn().map_err(|source| VmmError::Spawn { program: words[0].clone(), source })
}

/// Opens a file of the image for QEMU, whose user may not be able to: a home folder, for example, is closed.
fn inherited(path: &Path) -> Result<File, VmmError> {
    let failed = |source| VmmError::Image { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).map_err(|e| failed(e.into()))?;
    Ok(file)
}

/// Returns the path at which the process that inherits a file opens it.
fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns the words in front of QEMU's: `nsenter`, if there is a network namespace, `unshare` and `setpriv`.
fn confinement(machine: &Machine, uid: u32, network: Option<RawFd>) -> Vec<String> {
    let is_root = rustix::process::geteuid().is_root();
    let mut all = match network {
        Some(fd) => vec!["nsenter".to_owned(), format!("--net=/proc/self/fd/{fd}"), "unshare".to_owned()],
        None => vec!["unshare".to_owned(), "--net".to_owned()],
    };
    all.extend(["--ipc", "--uts"].map(str::to_owned));
    if !is_root {
        all.extend(["--user", "--map-current-user"].map(str::to_owned));
    }
    all.extend(["--", "setpriv", "--no-new-privs", "--pdeathsig", "KILL"].map(str::to_owned));
    if is_root {
        all.extend([format!("--reuid={uid}"), format!("--regid={uid}"), groups(machine)]);
        all.extend(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"].map(str::to_owned));
    }
    all.push("--".to_owned());
    all
}

/// Returns the argument of `setpriv` for the groups of the devices that QEMU opens.
fn groups(machine: &Machine) -> String {
    let group = |device: &&Path| Some(std::fs::metadata(device).ok()?.gid());
    let groups: BTreeSet<_> = machine.options.devices.iter().filter_map(group).collect();
    if groups.is_empty() {
        return "--clear-groups".to_owned();
    }
    format!("--groups={}", groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
}

/// Makes this process user `uid`'s, if it is root's, without a way to gain privileges again, and
/// unreadable to QEMU. Called while the process has one thread.
pub(crate) fn drop_privileges(uid: u32) -> Result<(), VmmError> {
    let failed = |source: rustix::io::Errno| VmmError::Privileges(source.into());
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        rustix::thread::set_thread_groups(&[]).map_err(failed)?;
        rustix::thread::set_thread_res_gid(group, group, group).map_err(failed)?;
        rustix::thread::set_thread_res_uid(user, user, user).map_err(failed)?;
    }
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)
}

/// Returns the inherited control socket.
pub(crate) fn control_socket(fd: OwnedFd) -> Result<OwnedFd, VmmError> {
    match rustix::net::sockopt::socket_type(fd.as_fd()) {
        Ok(rustix::net::SocketType::SEQPACKET) => Ok(fd),
        _ => Err(VmmError::NoSocket),
    }
}
