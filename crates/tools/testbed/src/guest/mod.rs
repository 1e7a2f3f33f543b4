//! Real guests: QEMU with an ordinary Linux, controlled through a shell.
//!
//! A guest has one network interface that is a vhost-user port of a switch, pages shared with the host as
//! ivshmem devices, and nothing else of the machine. Software emulation is enough ([`Guest::usable`] says
//! what is missing).

mod image;
mod p4vm;
mod packages;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use p4shield_qemu::{Accelerator, PROGRAM};
use tempfile::TempDir;

use crate::console::Console;
use crate::leftover::folder;
use crate::process::{Guarded, find, last_lines};
use crate::{Error, Result, wait_until};
use image::Kernel;

pub use p4vm::{
    p4vm_image, p4vm_program, switch_image, switch_program, tenant_switch_image, tenant_switch_program,
    uservm_program,
};

/// Returns the accelerator to use; probed once per process.
fn accelerator() -> &'static str {
    static FOUND: OnceLock<Accelerator> = OnceLock::new();
    FOUND.get_or_init(|| Accelerator::probe(Path::new(PROGRAM))).name()
}

/// The kernel's command line. `no_timer_check`: an emulated timer on a loaded machine may miss the ticks that
/// the kernel waits for.
const COMMAND_LINE: &str =
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off random.trust_cpu=on no_timer_check";

/// Time limit of a guest's boot in seconds: software emulation on a loaded machine is slow.
const BOOT: u64 = 240;

/// Largest difference between the guest's clock and ours, seconds.
const CLOCKS_APART: f64 = 0.3;
/// Attempts to set the clock, each about a second.
const CLOCK_TRIES: u64 = 60;

/// Settings of a [`Guest`].
#[derive(Debug, Clone, Default)]
pub struct GuestSetup {
    programs: Vec<PathBuf>,
    files: packages::Files,
    drivers: Vec<String>,
    modules: Vec<String>,
    packages: Vec<packages::Package>,
    network: Option<(PathBuf, String)>,
    /// Pairs of queues beyond the first.
    more_queues: u16,
    pages: Vec<(u8, PathBuf)>,
    options: Vec<String>,
}

impl GuestSetup {
    /// Copies a program of the host with its libraries into the guest's `/bin`.
    #[must_use]
    pub fn program(mut self, path: &Path) -> Self {
        self.programs.push(path.to_owned());
        self
    }

    /// Copies a file of these bytes into the guest.
    #[must_use]
    pub fn file(mut self, path: &str, bytes: &[u8]) -> Self {
        self.files.push((path.to_owned(), bytes.to_vec()));
        self
    }

    /// Gives the guest the distribution's kernel for any machine, with these modules loaded in order. The
    /// usual kernel drives virtual devices only. [`Guest::usable_with_drivers`] says whether it is there.
    #[must_use]
    pub fn drivers(mut self, modules: &[&str]) -> Self {
        self.drivers = modules.iter().map(|module| (*module).to_owned()).collect();
        self
    }

    /// Loads modules of the usual kernel, in order.
    #[must_use]
    pub fn modules(mut self, modules: &[&str]) -> Self {
        self.modules = modules.iter().map(|module| (*module).to_owned()).collect();
        self
    }

    /// Brings a Debian package along, for [`Guest::install`]: the file's name and its contents. The guest has
    /// the libraries of the packages that it depends on, and no other ones for it.
    #[must_use]
    pub fn package(mut self, name: &str, bytes: &[u8]) -> Self {
        self.packages.push((name.to_owned(), bytes.to_vec()));
        self
    }

    /// Adds a virtio network interface on a vhost-user port: QEMU listens at `socket`, and starts the guest
    /// when the switch has connected.
    #[must_use]
    pub fn network(mut self, socket: &Path, mac: &str) -> Self {
        self.network = Some((socket.to_owned(), mac.to_owned()));
        self
    }

    /// Gives that interface this many pairs of queues, and the guest as many processors.
    #[must_use]
    pub const fn queues(mut self, queues: u16) -> Self {
        self.more_queues = queues.saturating_sub(1);
        self
    }

    /// Shares a page file of the host with the guest: an `ivshmem-plain` device at PCI address
    /// `0000:00:SLOT.0`. The file's size must be a power of two.
    #[must_use]
    pub fn page(mut self, slot: u8, file: &Path) -> Self {
        self.pages.push((slot, file.to_owned()));
        self
    }

    /// Adds options of QEMU. They prevail over those of the test bed.
    #[must_use]
    pub fn options(mut self, options: Vec<String>) -> Self {
        self.options = options;
        self
    }

    /// Starts QEMU and returns while the guest boots; see [`Guest::wait_booted`].
    ///
    /// # Errors
    /// There is no kernel, or QEMU does not start.
    pub fn start(mut self) -> Result<Guest> {
        let dir = folder("guest")?;
        let at = |name: &str| dir.path().join(name);
        let kernel = if self.drivers.is_empty() { Kernel::get() } else { Kernel::with_drivers() }?;
        if !self.packages.is_empty() {
            self.files.extend(packages::files(&self.packages, dir.path())?);
        }
        let modules = [&self.drivers[..], &self.modules].concat();
        let root = image::root(&kernel, &modules, &self.programs, &self.files, dir.path())?;
        std::fs::write(at("root"), root).map_err(Error::system("write the guest's root"))?;
        let mut command = self.command(&kernel, dir.path())?;
        let errors = File::create(at("qemu.log")).map_err(Error::system("make QEMU's log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let (qemu, packages) = (Guarded::spawn(&mut command)?, self.packages);
        let mut guest = Guest { qemu, dir, shell: None, commands: 0, packages };
        guest.connect().map_err(|e| guest.explain(&e))?;
        Ok(guest)
    }

    fn command(&self, kernel: &Kernel, dir: &Path) -> Result<Command> {
        let at = |name: &str| dir.join(name).display().to_string();
        let mut c = Command::new(find(PROGRAM).unwrap_or_else(|| PROGRAM.into()));
        let accelerator = accelerator();
        c.args(["-machine", "pc,memory-backend=ram", "-accel", accelerator, "-cpu", "max"]);
        c.args(["-m", "512", "-object", "memory-backend-memfd,id=ram,size=512M,share=on"]);
        c.args(["-nodefaults", "-display", "none", "-no-reboot", "-rtc", "base=utc,clock=host"]);
        c.arg("-kernel").arg(kernel.image()).args(["-initrd", &at("root")]);
        c.args(["-append", COMMAND_LINE]);
        c.args(["-chardev", &format!("file,id=log,path={}", at("console.log")), "-serial", "chardev:log"]);
        c.args(["-chardev", &format!("socket,id=shell,path={},server=on,wait=off", at("shell.sock"))]);
        c.args(["-serial", "chardev:shell"]);
        if let Some((socket, mac)) = &self.network {
            c.args(["-chardev", &format!("socket,id=net,path={},server=on", socket.display())]);
            let queues = self.more_queues + 1;
            c.args(["-smp", &queues.to_string()]);
            c.args(["-netdev", &format!("vhost-user,id=net,chardev=net,queues={queues}")]);
            // Without KVM, QEMU 7.2 follows a null pointer when a guest masks an MSI-X vector of a vhost-user
            // device; so there are none.
            let vectors = if accelerator == "tcg" { ",vectors=0" } else { "" };
            let several = if queues > 1 { ",mq=on" } else { "" };
            let device = format!("virtio-net-pci,netdev=net,mac={mac},romfile={vectors}{several}");
            c.args(["-device", &device]);
        }
        for (slot, file) in &self.pages {
            let size = file.metadata().map(|m| m.len());
            let size = size.map_err(Error::system(format!("read {}", file.display())))?;
            let (id, path) = (format!("page{slot}"), file.display());
            c.args(["-object", &format!("memory-backend-file,id={id},size={size},mem-path={path},share=on")]);
            c.args(["-device", &format!("ivshmem-plain,memdev={id},addr=0x{slot:x}")]);
        }
        c.args(&self.options);
        Ok(c)
    }
}

/// A running guest. QEMU is killed on drop.
#[derive(Debug)]
pub struct Guest {
    qemu: Guarded,
    dir: TempDir,
    shell: Option<Console>,
    commands: u64,
    packages: Vec<packages::Package>,
}

/// Result of a command in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// Its exit code.
    pub code: i32,
    /// Its output and error output.
    pub output: String,
}

impl Guest {
    /// Returns the defaults: 512 MiB, one processor, no network.
    #[must_use]
    pub fn setup() -> GuestSetup {
        GuestSetup::default()
    }

    /// Checks whether this machine can run guests.
    ///
    /// # Errors
    /// The reason why not, for a `skipped:` line.
    pub fn usable() -> std::result::Result<(), String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("guests are built for x86-64 only".into());
        }
        for (command, package) in
            [(PROGRAM, "qemu-system-x86"), ("busybox", "busybox-static"), ("strip", "binutils")]
        {
            if find(command).is_none() {
                return Err(format!("{command} (package {package}) is missing"));
            }
        }
        Kernel::get().map(drop).map_err(|e| format!("there is no kernel for guests: {e}"))
    }

    /// Checks whether this machine can run guests with [`GuestSetup::drivers`].
    ///
    /// # Errors
    /// The reason why not, for a `skipped:` line.
    pub fn usable_with_drivers() -> std::result::Result<(), String> {
        Self::usable()?;
        Kernel::with_drivers().map(drop).map_err(|e| format!("there is no kernel with drivers: {e}"))
    }

    fn connect(&mut self) -> Result<()> {
        let socket = self.dir.path().join("shell.sock");
        let mut stream = None;
        wait_until("QEMU to listen", 30, || {
            stream = UnixStream::connect(&socket).ok();
            stream.is_some() || self.qemu.ended().is_some()
        })?;
        let file = |s: UnixStream| File::from(OwnedFd::from(s));
        let reader = stream.ok_or_else(|| Error::failed(PROGRAM, "it ended"))?;
        let writer = reader.try_clone().map_err(Error::system("copy a socket"))?;
        self.shell = Some(Console::new(file(reader), file(writer)));
        Ok(())
    }

    /// Returns whether the guest has a shell. [`Self::wait_booted`] then takes seconds.
    #[must_use]
    pub fn has_booted(&self) -> bool {
        self.shell.as_ref().is_some_and(|shell| shell.wait_for(0, "guest-shell", 0).is_ok())
    }

    /// Waits until the guest's shell answers, and sets its clock.
    ///
    /// # Errors
    /// The guest does not boot; with its output.
    pub fn wait_booted(&mut self) -> Result<()> {
        let shell = self.shell.as_ref().ok_or_else(|| self.no_shell())?;
        shell.wait_for(0, "guest-shell", BOOT).map_err(|e| self.explain(&e))?;
        self.run("true", 30)?;
        self.set_clock()
    }

    /// The emulated real-time clock counts whole seconds, and sealed messages carry the guest\'s time. Sets
    /// the guest\'s clock at the start of a second and reads it afterwards, until both clocks agree.
    fn set_clock(&mut self) -> Result<()> {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for _ in 0..CLOCK_TRIES {
            let next = now().as_secs() + 1;
            std::thread::sleep(Duration::from_secs(next).saturating_sub(now()));
            self.must(&format!("date -u -s @{next}"))?;
            let before = now().as_secs_f64();
            let answer = self.must("adjtimex")?;
            let after = now().as_secs_f64();
            let guest = told_time(&answer);
            // The guest read its clock between the two instants.
            if guest > after - CLOCKS_APART && guest < before + CLOCKS_APART {
                return Ok(());
            }
        }
        Err(Error::Timeout { what: "setting the guest's clock".into(), seconds: CLOCK_TRIES })
    }

    /// Runs a line in the guest\'s shell and waits at most `seconds` for its end. A line that ends in `&`
    /// leaves its program running.
    ///
    /// # Errors
    /// The guest does not answer; with its output. A line that fails is not an error: see
    /// [`CommandResult::code`].
    pub fn run(&mut self, line: &str, seconds: u64) -> Result<CommandResult> {
        self.commands += 1;
        let mark = format!("guest-end {} ", self.commands);
        let missing = self.no_shell();
        let shell = self.shell.as_mut().ok_or(missing)?;
        let from = shell.position();
        shell.line(&format!("( {line}\n) </dev/null; echo guest-end {} $?.", self.commands))?;
        let attempt = shell.wait_for(from, &mark, seconds).and_then(|(output, at)| {
            let (code, _) = shell.wait_for(at, ".\n", 30)?;
            Ok(CommandResult { code: code.trim().parse().unwrap_or(-1), output: output.replace('\r', "") })
        });
        attempt.map_err(|e| self.explain(&e))
    }

    /// Runs a line that must succeed within a minute, and returns its output.
    ///
    /// # Errors
    /// As [`Guest::run`]; [`Error::Failed`] if its exit code is not 0.
    pub fn must(&mut self, line: &str) -> Result<String> {
        let outcome = self.run(line, 60)?;
        match outcome.code {
            0 => Ok(outcome.output),
            code => {
                let why = format!("exit code {code}: {}", outcome.output);
                Err(Error::failed(format!("in the guest: {line}"), why))
            }
        }
    }

    /// Installs the packages that the setup brought along, with the guest's own dpkg. Returns what dpkg and
    /// the packages' scripts said.
    ///
    /// # Errors
    /// As [`Guest::must`]: a package that they depend on is missing, or a script of theirs fails.
    pub fn install(&mut self) -> Result<String> {
        self.must(&packages::install_line(&self.packages))
    }

    /// Returns the output of the guest's kernel and first program so far.
    #[must_use]
    pub fn log(&self) -> String {
        let read = |name| std::fs::read(self.dir.path().join(name)).unwrap_or_default();
        let bytes = [read("qemu.log"), read("console.log")].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the exit status if QEMU has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.qemu.ended()
    }

    fn no_shell(&self) -> Error {
        Error::failed(PROGRAM, format!("it has no shell:\n{}", self.log()))
    }

    fn explain(&mut self, error: &Error) -> Error {
        let ended = self.ended().map(|s| format!("; QEMU ended: {s}")).unwrap_or_default();
        let end = last_lines(&self.log(), 30);
        Error::failed("the guest", format!("{error}{ended}\n--- its console ends:\n{end}"))
    }
}

/// Returns the time in seconds from the output of busybox's `adjtimex`; its `date` has no smaller unit.
fn told_time(text: &str) -> f64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let value = |name| {
        let at = words.iter().position(|w| *w == name)?;
        words.get(at + 1)?.parse::<f64>().ok()
    };
    value("time.tv_sec:").unwrap_or_default() + value("time.tv_usec:").unwrap_or_default() / 1e6
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::process::run;
    use crate::{NetNs, OpenVswitch};

    #[test]
    fn a_guest_boots_runs_programs_and_shares_a_page() {
        if let Err(why) = Guest::usable() {
            p4shield_need::skip("qemu", why);
            return;
        }
        let dir = folder("page").unwrap();
        let page = dir.path().join("page");
        std::fs::write(&page, [7; 8192]).unwrap();
        // A program with libraries of its own, as p4shield has.
        let program = find("ethtool").unwrap();
        let setup = Guest::setup().program(&program).file("/etc/note", b"brought along").page(5, &page);
        let mut guest = setup.start().unwrap();
        guest.wait_booted().unwrap();
        assert_eq!(guest.must("cat /etc/note").unwrap(), "brought along");
        assert_eq!(
            guest.run("echo no >&2; exit 3", 60).unwrap().code,
            3,
            "the line is not a shell of its own"
        );
        assert!(guest.must("ethtool --version").unwrap().starts_with("ethtool"));
        let device = "/sys/bus/pci/devices/0000:00:05.0";
        let ids = guest.must(&format!("cat {device}/vendor {device}/device {device}/resource")).unwrap();
        assert!(ids.starts_with("0x1af4\n0x1110\n"), "{ids}");
        let pid = guest.qemu.pid();
        drop(guest);
        rustix::process::test_kill_process(pid).unwrap_err();
    }

    #[test]
    fn the_time_is_read_in_seconds_and_microseconds() {
        let text = "    return value: 5 (clock)\n    time.tv_sec:  1795270353\n    time.tv_usec: 250000\n";
        assert!((told_time(text) - 1_795_270_353.25).abs() < 1e-6);
        assert!(told_time("no such thing").abs() < 1.0);
    }

    /// The guest is an ordinary port of an ordinary switch.
    #[test]
    fn a_guest_is_reached_through_open_vswitch() {
        if let Err(why) = OpenVswitch::usable().and_then(|()| Guest::usable()) {
            p4shield_need::skip("qemu", why);
            return;
        }
        let (host, client) = (NetNs::create("host").unwrap(), NetNs::create("client").unwrap());
        host.veth("s0", &client, "eth0").unwrap();
        client.send_whole_packets("eth0").unwrap();
        client.ip("addr add 10.9.3.1/24 dev eth0").unwrap();
        let switch = OpenVswitch::over_dpdk().start(&host).unwrap();
        let dir = folder("vhost").unwrap();
        let socket = dir.path().join("vm0.sock");
        let mut guest = Guest::setup().network(&socket, "52:54:00:00:00:02").start().unwrap();
        switch.add_interface("uplink", "s0").unwrap();
        switch.add_vhost_client("vm0", &socket).unwrap();
        guest.wait_booted().unwrap();
        guest.must("ip addr add 10.9.3.2/24 dev eth0 && ip link set eth0 up").unwrap();
        let ping = || run(client.command("ping").args(["-c1", "-W1", "10.9.3.2"])).is_ok();
        wait_until("a ping to the guest", 60, ping).unwrap();
        guest.must("nc -l -p 7 -e cat >/dev/null 2>&1 &").unwrap();
        let answer = client.inside(|| {
            let mut stream = None;
            wait_until("a connection to the guest", 60, || {
                stream = TcpStream::connect("10.9.3.2:7").ok();
                stream.is_some()
            })
            .unwrap();
            let mut stream = stream.unwrap();
            stream.write_all(b"echo").unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
            answer
        });
        assert_eq!(&answer, b"echo");
    }
}
