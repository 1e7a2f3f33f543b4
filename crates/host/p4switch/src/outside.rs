//! Placement `pipeline`, the process with privileges: the whole switch is in a compartment, another process.
//!
//! ```text
//!   outside (this one)                                compartment: empty root, own namespaces, no
//!     opens ports ──rings and memory, by descriptor──►  capability, two lists of system calls
//!     admits clients ────────connections─────────────►  desk
//!     watches interfaces ───────bell─────────────────►  keeper
//!             ◄──"open veth1", "how is veth1?"──────
//! ```
//!
//! This process takes what comes from inside for hostile: messages are bounded, and it opens no other
//! interface than those that the operator named, each once at a time. It reads no packet and no client's
//! request. If either process ends, so does the other, and the ports are released.

use crate::line::{Ask, Client, Message, Seen, Setup, Told, receive, send};
use crate::permit::{Permitted, beside};
use crate::run::{SwitchError, check_inside, check_no_machine, listen_for_metrics, listen_on};
use crate::surroundings::compartment_user;
use p4shield_compartment::LocalProcess;
use p4shield_control::{Measure, SandboxReport, Socket};
use p4shield_io::afxdp::handed::{self, Held};
use p4shield_io::afxdp::{AfxdpConfig, Watch};
use p4shield_io::ports::{self, CONTROLLER};
use p4shield_socket::{Entrance as _, Listener, Server, Visitor};
use p4shield_switch::Share;
use p4shield_text::{chain, printable};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for a process to give up its privileges.
const START: Duration = Duration::from_secs(30);
/// Longest time for the switch to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// Time between two looks for the request to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The variable with the level of the log.
const LOG_LEVEL: &str = "P4SHIELD_LOG";

/// How a compartment is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The binary, started as `BINARY switch-inside ...`.
    pub binary: PathBuf,
    /// The socket for commands.
    pub socket: PathBuf,
    /// Measures of the sandbox that may be missing.
    pub allow_missing: Vec<Measure>,
    /// Its user, which no other process has; `None`: one by this process's number.
    pub uid: Option<u32>,
    /// True if its ports are interfaces of its own network namespace, and not of this process's. They may be
    /// moved there once it has started.
    pub own_network: bool,
}

/// Has a switch forward packets in a compartment until `stop` is set. Calls `ready` once the ports are open
/// and the socket answers.
///
/// # Errors
/// [`SwitchError`]: the switch did not start, or its compartment has ended.
pub fn run_in_compartment(
    setup: &Setup,
    launch: &Launch,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(), SwitchError> {
    check_inside(&setup.ports, setup.threads)?;
    check_no_machine(&setup.ports)?;
    let listener = listen_on(&launch.socket)?;
    let permits = listen_on(&beside(&launch.socket))?;
    let metrics = setup.metrics.map(listen_for_metrics).transpose()?.map(|(_, listener)| listener);
    let (mut started, clients) = start(launch)?;
    let (process, report) = entered(&mut started)?;
    if launch.own_network {
        enter_network(&process).map_err(broken)?;
    }
    let watch = Watch::open().map_err(ports::Error::from)?;
    report.missing.iter().for_each(|measure| {
        tracing::warn!(event = "compartment_measure_missing", %measure, "the compartment lacks {measure}");
    });
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(broken)?;
    let names = setup.ports.iter().map(|(_, name)| name.clone()).filter(|name| name != CONTROLLER);
    let permitted = Permitted::new(names.collect());
    let _permits = Server::start(permits, permitted.clone()).map_err(broken)?;
    let outside = Outside {
        control: started.control,
        clients,
        listener,
        bell,
        watch,
        held: Vec::new(),
        permitted: permitted.clone(),
        threads: setup.threads,
        is_ready: false,
    };
    outside.tell_setup(setup, metrics.as_ref())?;
    outside.serve_until(process, stop, ready)
}

fn broken(error: impl Into<io::Error>) -> SwitchError {
    SwitchError::Compartment(error.into())
}

/// A process that has been started, and not given up its privileges yet.
struct Started {
    child: Child,
    control: Socket,
}

/// Starts the process. Returns the socket to hand clients in by, too.
fn start(launch: &Launch) -> Result<(Started, Socket), SwitchError> {
    let pair = || Socket::pair().map_err(|e| broken(io::Error::other(e)));
    let ((control, theirs), (clients, their_clients)) = (pair()?, pair()?);
    control.ask_for_senders().map_err(|e| broken(io::Error::other(e)))?;
    let (log, stderr) = io::pipe().map_err(broken)?;
    let uid = launch.uid.unwrap_or_else(compartment_user);
    let mut command = Command::new(&launch.binary);
    command.args(["switch-inside", "--uid", &uid.to_string()]);
    for measure in &launch.allow_missing {
        command.args(["--allow-missing", measure.name()]);
    }
    // What the environment has is the operator's.
    command.env_clear().envs(std::env::var_os(LOG_LEVEL).map(|level| (LOG_LEVEL, level)));
    command.stdin(theirs.into_fd()).stdout(their_clients.into_fd()).stderr(stderr);
    let child = command.spawn().map_err(broken)?;
    let copy = std::thread::Builder::new().name("log".to_owned());
    copy.spawn(move || p4shield_vmm::copy_lines(log)).map_err(broken)?;
    Ok((Started { child, control }, clients))
}

/// Waits until the process has given up its privileges. Another process continues in its place.
fn entered(started: &mut Started) -> Result<(LocalProcess, SandboxReport), SwitchError> {
    let Started { child, control } = started;
    let message = control.wait(Some(START)).map_err(io::Error::other);
    let message = message.and_then(|()| receive::<Ask>(control, 0).map_err(io::Error::other));
    if message.is_err() {
        // It may be what does not answer.
        let _ = child.kill();
    }
    child.wait().map_err(broken)?;
    let Message { body: Ask::Entered(report), sender: Some(pid), .. } = message.map_err(broken)? else {
        return Err(broken(io::Error::other("its first message is another one than expected")));
    };
    let process = LocalProcess::child(pid, None).map_err(|e| broken(io::Error::other(e)))?;
    Ok((process, report))
}

/// Enters a process's network namespace with this thread, which opens and watches interfaces. The kernel
/// sends no packets of its own there.
fn enter_network(process: &LocalProcess) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{}/ns/net", process.pid()))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    // Without IPv6 there are none.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    Ok(())
}

/// The things that there are to do.
struct Due {
    has_ended: bool,
    asks: bool,
    has_client: bool,
    changed: bool,
    released: bool,
}

/// The meaning of a message.
enum Said {
    Nothing,
    Ready,
}

struct Outside {
    control: Socket,
    /// Where clients are handed in.
    clients: Socket,
    listener: Listener,
    /// Rings when an interface changes.
    bell: OwnedFd,
    watch: Watch,
    /// The ports that are open.
    held: Vec<Held>,
    permitted: Permitted,
    threads: usize,
    is_ready: bool,
}

impl Outside {
    fn tell_setup(&self, setup: &Setup, metrics: Option<&TcpListener>) -> Result<(), SwitchError> {
        let json = serde_json::to_vec(setup).map_err(|e| broken(io::Error::from(e)))?;
        let mut file = File::from(memfd_create("setup", MemfdFlags::CLOEXEC).map_err(broken)?);
        file.write_all(&json).map_err(broken)?;
        let mut descriptors = vec![file.as_fd(), self.bell.as_fd()];
        descriptors.extend(metrics.map(|listener| listener.as_fd()));
        self.tell(Told::Setup, &descriptors)
    }

    fn tell(&self, told: Told, descriptors: &[rustix::fd::BorrowedFd<'_>]) -> Result<(), SwitchError> {
        send(&self.control, told, descriptors).map_err(|e| broken(io::Error::other(e)))
    }

    /// Serves the compartment until `stop` is set.
    fn serve_until(
        mut self,
        process: LocalProcess,
        stop: &AtomicBool,
        ready: impl FnOnce(),
    ) -> Result<(), SwitchError> {
        let pidfd = process.pidfd().map_err(broken)?;
        let mut ready = Some(ready);
        while !stop.load(Ordering::Relaxed) {
            match self.round(&pidfd) {
                Ok(Said::Nothing) => {}
                Ok(Said::Ready) => {
                    self.is_ready = true;
                    ready.take().into_iter().for_each(|ready| ready());
                }
                Err(error) => {
                    // One that says why it does not start also ends by itself.
                    let says_why = matches!(error, SwitchError::Refused(_) | SwitchError::Inside(_));
                    tracing::debug!("the compartment's connection: {}", chain(&error));
                    let how = process.end(if says_why { GRACE } else { Duration::ZERO });
                    return Err(if says_why { error } else { SwitchError::Ended(how) });
                }
            }
        }
        // The switch ends by itself once no more client can come.
        drop(self.clients);
        process.end(GRACE);
        Ok(())
    }

    /// Waits until there is something to do, and does it.
    fn round(&mut self, process: &OwnedFd) -> Result<Said, SwitchError> {
        let due = self.wait(process)?;
        if due.released {
            self.release();
        }
        if due.changed {
            // A message that was lost may have been about any interface: it looks at all.
            let _ = self.watch.look();
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        if due.has_client {
            self.admit();
        }
        if due.asks {
            return self.answer();
        }
        if due.has_ended { Err(broken(io::Error::other("its process has ended"))) } else { Ok(Said::Nothing) }
    }

    fn wait(&self, process: &OwnedFd) -> Result<Due, SwitchError> {
        let timeout = Timespec::try_from(LOOK).ok();
        let leases: Vec<_> = self.held.iter().map(Held::lease).collect();
        let mut fds = vec![
            PollFd::new(process, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::new(&self.watch, PollFlags::IN),
            PollFd::new(&self.listener, if self.is_ready { PollFlags::IN } else { PollFlags::empty() }),
        ];
        fds.extend(leases.iter().map(|lease| PollFd::new(lease, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(broken(error)),
        }
        let is_due = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Due {
            has_ended: is_due(0),
            asks: is_due(1),
            changed: is_due(2),
            has_client: is_due(3),
            released: (4..fds.len()).any(is_due),
        })
    }

    /// Releases the ports of which the switch has no part any more.
    fn release(&mut self) {
        self.held.retain(|held| {
            let mut fds = [PollFd::from_borrowed_fd(held.lease(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready == 0)
        });
    }

    /// Hands a client in, whose user may connect.
    fn admit(&mut self) {
        let Ok(Visitor { stream, uid, gid }) = self.listener.next_visitor() else { return };
        if uid == 0 || uid == rustix::process::geteuid().as_raw() {
            // A switch that takes no clients costs them their connection.
            let _ = send(&self.clients, Client { uid, gid }, &[stream.as_fd()]);
        }
    }

    /// Answers a question of the compartment.
    fn answer(&mut self) -> Result<Said, SwitchError> {
        let message = receive::<Ask>(&mut self.control, 0).map_err(|e| broken(io::Error::other(e)))?;
        let said = match message.body {
            Ask::Open { interface, first } => return self.open(&interface, first),
            Ask::Look { interfaces } => {
                let seen = interfaces
                    .iter()
                    .map(|name| self.permitted.has(name).then(|| Seen::find(&self.watch, name)).flatten());
                self.tell(Told::Looked(seen.collect()), &[])?;
                Said::Nothing
            }
            Ask::Ready => Said::Ready,
            Ask::Refused(why) => return Err(SwitchError::Refused(printable(&why))),
            Ask::Failed(why) => return Err(SwitchError::Inside(printable(&why))),
            Ask::Entered(_) => return Err(broken(io::Error::other("it repeats its first message"))),
        };
        Ok(said)
    }

    fn open(&mut self, interface: &str, first: usize) -> Result<Said, SwitchError> {
        self.release();
        let opened = if !self.permitted.has(interface) {
            Err(format!("{}: {NOT_PERMITTED}", printable(interface)))
        } else if self.held.iter().any(|held| held.name() == interface) {
            Err(format!("{interface} is a port already"))
        } else {
            let share = Share { threads: self.threads, first: first % self.threads };
            let config = AfxdpConfig::new(std::iter::empty::<String>());
            handed::open(&config, interface, share).map_err(|error| chain(&error))
        };
        match opened {
            Ok((held, parcel)) => {
                self.held.push(held);
                self.tell(Told::Opened(parcel.description.clone()), &parcel.descriptors())?;
            }
            Err(why) => self.tell(Told::Failed(why), &[])?,
        }
        Ok(Said::Nothing)
    }
}

const NOT_PERMITTED: &str = "no operator has given this interface to the switch; add it with \
                             `p4shield switch port add` of the same version";
