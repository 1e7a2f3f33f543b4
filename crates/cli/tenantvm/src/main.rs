//! The one program in a virtual machine that is a tenant's switch.
//!
//! As the machine's first process it makes the file systems, loads the modules of the network devices, and
//! keeps Open vSwitch running, as a compartment's first process does. The host's orders come over a
//! virtio-serial port. When it ends, the machine powers off.
#![forbid(unsafe_code)]

use anyhow::Context;
use p4shield_boot::Port;
use p4shield_tenantswitch::{GuestLine, MachineSetup, open_port, prepare_network};
use std::convert::Infallible;

fn main() {
    let Err(error) = run();
    report(&error);
    let error = p4shield_boot::power_off();
    report(&anyhow::Error::new(error).context("cannot power off"));
}

fn run() -> anyhow::Result<Infallible> {
    p4shield_boot::check_first().context("`p4shield topology apply` starts a machine")?;
    p4shield_boot::mount_all()?;
    prepare_network();
    p4shield_boot::load_modules()?;
    let mut line = GuestLine::new(Port::open()?);
    let ready = prepare(&line.setup()?).err().map(|e| format!("{e:#}"));
    Ok(line.serve(ready)?)
}

/// Sets the clock and the network devices.
fn prepare(setup: &MachineSetup) -> anyhow::Result<()> {
    p4shield_boot::follow_clock(setup.unix_ns).context("cannot set the clock")?;
    p4shield_links::start("lo")?;
    for (address, name) in &setup.interfaces {
        p4shield_links::rename_by_address(*address, name)?;
        open_port(name)?;
    }
    Ok(())
}

/// Writes an error to the console.
fn report(error: &anyhow::Error) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "tenantvm: {error:#}");
}
