//! P4 VMs in processes of this machine: their start, control connection and end.

use crate::command::P4VmCommand;
use crate::{Compartment, Group, Launcher, LocalProcess, OutputTail, ProcessIdentity, StartError, spawn};
use p4shield_control::{
    Client, ClientError, Hello, PROTOCOL_VERSION, Reply, Request, Resources, SandboxReport, Socket,
    SocketError,
};
use rustix::process::Pid;
use std::os::fd::BorrowedFd;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Longest time for a P4 VM to answer its next daemon: it may be verifying a program.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a process that failed to write why.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Starts and adopts P4 VMs in processes of this machine. A P4 VM in a virtual machine is one, too: `p4shield
/// vmm`, with QEMU as its child.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processes;

/// A P4 VM in a process.
struct P4VmProcess {
    client: Client,
    sandbox: SandboxReport,
    process: LocalProcess,
    /// How many times longer than usual it may take to answer.
    slowness: u32,
}

impl Launcher for Processes {
    fn start(
        &self,
        p4vm: &P4VmCommand,
        group: Option<&Group>,
        hello: Hello,
        resources: &Resources<'_>,
    ) -> Result<Box<dyn Compartment>, StartError> {
        let (socket, theirs) = Socket::pair().map_err(ClientError::from)?;
        socket.ask_for_senders().map_err(ClientError::from)?;
        let (mut output, stderr) = OutputTail::new().map_err(StartError::Spawn)?;
        let mut command = p4vm.command();
        command.env_clear().stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null()).stderr(stderr);
        let parent = spawn(&mut command, group).map_err(StartError::Spawn);
        // Closes this process's copies of the child's ends, so that the child's end is noticed.
        drop(command);
        let mut parent = parent?;
        let mut client = Client::new(socket);
        let reply = client.call(Request::Hello(hello), resources, p4vm.start_timeout());
        if let Err(source) = reply {
            return Err(StartError::NoAnswer { why: last_words(&mut parent, &mut output, &source), source });
        }
        // The first process forks the P4 VM and ends. That of a virtual machine stays.
        if p4vm.machine.is_none() {
            let _ = parent.wait();
        }
        match (reply, client.peer()) {
            (Ok(Reply::Hello { sandbox, .. }), Some(pid)) => {
                let process = LocalProcess::child(pid, Some(output))?;
                Ok(Box::new(P4VmProcess { client, sandbox, process, slowness: p4vm.slowness() }))
            }
            _ => Err(StartError::Client(ClientError::Unexpected)),
        }
    }

    fn adopt(
        &self,
        p4vm: &P4VmCommand,
        socket: Socket,
        identity: &ProcessIdentity,
    ) -> Result<Box<dyn Compartment>, StartError> {
        let (output, stderr) = OutputTail::new().map_err(StartError::Spawn)?;
        let process = LocalProcess::adopt(identity, Some(output))?;
        socket.ask_for_senders().map_err(ClientError::from)?;
        let mut client = Client::new(socket);
        let request = Request::Adopt { version: PROTOCOL_VERSION };
        let mut resources = Resources::none();
        resources.add(&stderr);
        let reply = client.call(request, &resources, ADOPT_TIMEOUT)?;
        match (reply, client.peer()) {
            (Reply::Hello { sandbox, .. }, Some(pid)) if pid == process.pid() => {
                Ok(Box::new(P4VmProcess { client, sandbox, process, slowness: p4vm.slowness() }))
            }
            (Reply::Hello { .. }, _) => Err(StartError::UnknownSender),
            _ => Err(StartError::Client(ClientError::Unexpected)),
        }
    }
}

/// Ends a process that failed to start, and returns why it failed.
fn last_words(parent: &mut Child, output: &mut OutputTail, error: &ClientError) -> String {
    // A process that failed has closed its socket, and writes why before it ends.
    if matches!(error, ClientError::Socket(SocketError::Closed)) {
        output.read_to_end(LAST_WORDS);
    }
    let _ = parent.kill();
    let exit = parent.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
    output.read();
    let last = output.last();
    if last.is_empty() { format!("it wrote no reason ({exit})") } else { last }
}

impl Compartment for P4VmProcess {
    fn pid(&self) -> Pid {
        self.process.pid()
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        self.process.identity()
    }

    fn sandbox(&self) -> &SandboxReport {
        &self.sandbox
    }

    fn call(
        &mut self,
        request: Request,
        resources: &Resources<'_>,
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        self.client.call(request, resources, timeout * self.slowness)
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Duration) -> bool {
        self.process.wait(wake, timeout)
    }

    fn end(mut self: Box<Self>, grace: Duration) -> String {
        let stops = !grace.is_zero() && self.client.call(Request::Stop, &Resources::none(), grace).is_ok();
        self.process.end(if stops { grace } else { Duration::ZERO })
    }
}
