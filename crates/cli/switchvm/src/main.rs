//! The one program in a virtual machine that is a P4 switch.
//!
//! As the machine's first process it makes the file systems, loads the modules of the network devices, gets
//! its configuration over a virtio-serial port, and is then the same switch as `p4shield switch run` on a
//! host, whose clients come over that port ([`relay`]). When it ends, the machine powers off.
#![forbid(unsafe_code)]

mod host;
mod relay;

use anyhow::{Context, bail};
use host::Host;
use p4shield_line::switch::{FromSwitch, SWITCH_VERSION, ToSwitch};
use p4shield_p4switch::{Guest, Setup, SwitchError, run_in_guest};
use p4shield_runtime::Verifier;
use relay::Relay;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The switch's socket in the machine.
const SOCKET: &str = "/run/switch.sock";
/// The address of its metrics in the machine: any port.
const METRICS: &str = "127.0.0.1:0";

fn main() {
    if let Err(error) = run() {
        report(&error);
    }
    let error = p4shield_boot::power_off();
    report(&anyhow::Error::new(error).context("cannot power off"));
}

fn run() -> anyhow::Result<()> {
    p4shield_boot::check_first().context("`p4shield switch run --compartment vm` starts a machine")?;
    p4shield_boot::mount_all()?;
    p4shield_boot::load_modules()?;
    // While there is one thread, and before a program is read.
    let verifier = Verifier::start(false).context("cannot start the verifier's process")?;
    tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(io::stderr).init();
    let host = Arc::new(Host::open()?);
    let said = match serve(&host, verifier) {
        Ok(()) => return Ok(()),
        Err(error) => match error.downcast_ref::<SwitchError>() {
            Some(e) if e.is_refusal() => FromSwitch::Refused(format!("{error:#}")),
            _ => FromSwitch::Failed(format!("{error:#}")),
        },
    };
    host.send(&said)
}

/// Gets the configuration, and forwards packets until the host stops the switch.
fn serve(host: &Arc<Host>, verifier: Verifier) -> anyhow::Result<()> {
    host.send(&FromSwitch::Booted { version: SWITCH_VERSION })?;
    let mut received = host.receiver()?;
    let ToSwitch::Setup { json, unix_ns, interfaces } = received.next()? else {
        bail!("the host's first message is another one than expected");
    };
    p4shield_boot::follow_clock(unix_ns).context("cannot set the clock")?;
    let setup: Setup = serde_json::from_slice(&json).context("the host's configuration is none")?;
    p4shield_links::start("lo")?;
    for (address, name) in &interfaces {
        p4shield_links::rename_by_address(*address, name)?;
        p4shield_links::start(name)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let metrics = setup.metrics.map(|address| Ok((address, TcpListener::bind(METRICS)?)));
    let metrics = metrics.transpose().map_err(|e: io::Error| e).context("cannot serve metrics")?;
    let scraped = metrics.as_ref().and_then(|(_, listener)| listener.local_addr().ok());
    let relay = Relay::new(Arc::clone(host), Path::new(SOCKET), scraped);
    let guest = Guest { socket: SOCKET.into(), verifier, metrics };
    let ready = || {
        let stopped = Arc::clone(&stop);
        // Clients come once the socket answers.
        let relaying = std::thread::Builder::new().name("relay".to_owned());
        match relaying.spawn(move || relay.serve(received, &stopped)) {
            Ok(_) => host.send(&FromSwitch::Forwarding).unwrap_or_else(|e| report(&e)),
            Err(error) => report(&anyhow::Error::new(error).context("cannot start a thread")),
        }
    };
    run_in_guest(setup, guest, &stop, ready)?;
    Ok(())
}

/// Writes an error to the console.
fn report(error: &anyhow::Error) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "switchvm: {error:#}");
}
