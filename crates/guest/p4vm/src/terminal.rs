//! Serial lines as terminals without any processing.

use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The fastest speed of QEMU's serial lines, which emulate the time that a byte takes.
const SPEED: u32 = 115_200;

/// Opens the serial line with this number in raw mode.
pub(crate) fn open(number: u8) -> anyhow::Result<OwnedFd> {
    let path = format!("/dev/ttyS{number}");
    let line = rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("cannot open {path}; the machine needs three serial lines"))?;
    let mut settings = tcgetattr(&line).with_context(|| format!("{path} is no terminal"))?;
    settings.make_raw();
    settings.set_speed(SPEED).context("no such speed")?;
    tcsetattr(&line, OptionalActions::Flush, &settings).with_context(|| format!("cannot set {path} up"))?;
    // Otherwise the line interrupts when its queue is half full, or after the time of four bytes.
    let trigger = format!("/sys/class/tty/ttyS{number}/rx_trig_bytes");
    if Path::new(&trigger).exists() {
        std::fs::write(&trigger, "1").with_context(|| format!("cannot write {trigger}"))?;
    }
    Ok(line)
}
