//! Rows whose ports always have a packet: batches have the size that the switch asks for. Interfaces have
//! one as long as a generator sends more than the switch forwards.

use anyhow::{Context, ensure};
use p4shield_afxdp::Mode;
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::{BatchLog, Noted, PacketIo};

use super::fit::Measured;
use super::options::Ports;
use super::row::{Extent, Row};
use super::sizes::{Limited, Load, Sizes, log};
use crate::fixture::forward::{Forwarded, forward};
use crate::fixture::opened::{Opened, in_memory, null_devices};
use crate::fixture::ports::OneWay;

/// Measures over ports in memory.
pub(super) fn memory(rows: &[Row], extent: &Extent<'_>) -> anyhow::Result<Vec<Measured>> {
    each(rows, |row| measure(row, extent, || Ok(in_memory(row.bytes, row.threads))))
}

/// Measures over DPDK's devices that always have packets.
pub(super) fn net_null(rows: &[Row], extent: &Extent<'_>) -> anyhow::Result<Vec<Measured>> {
    each(rows, |row| measure(row, extent, || null_devices(row.bytes, row.threads)))
}

/// Measures over interfaces of this machine, into the first of which a generator sends.
pub(super) fn interfaces(rows: &[Row], extent: &Extent<'_>) -> anyhow::Result<Vec<Measured>> {
    let names = extent.interfaces.context("--interfaces names none")?;
    // As in the paper, also where a driver would not need the copy: a guest's has no choice.
    let config = AfxdpConfig { mode: Mode::Copy, ..AfxdpConfig::new(names) };
    each(rows, |row| measure(row, extent, || Ok(Opened::alone(AfxdpPorts::open(&config)?))))
}

fn each(
    rows: &[Row],
    measure: impl FnMut(&Row) -> anyhow::Result<Measured>,
) -> anyhow::Result<Vec<Measured>> {
    rows.iter().map(measure).collect()
}

/// Returns an error if a switch has dropped packets, or has none.
fn check(row: &Row, forwarded: &Forwarded) -> anyhow::Result<()> {
    if row.ports == Ports::Interfaces {
        // A card may be slower than the switch.
        ensure!(
            forwarded.packets.sent > 0,
            "no packet was forwarded; start the generator, then this command"
        );
        return Ok(());
    }
    forwarded.check(row.program())
}

/// Opens the ports of a row.
trait Open<I>: Fn() -> anyhow::Result<Opened<'static, I>> {}
impl<I, F: Fn() -> anyhow::Result<Opened<'static, I>>> Open<I> for F {}

fn measure<I: PacketIo>(row: &Row, extent: &Extent<'_>, open: impl Open<I>) -> anyhow::Result<Measured> {
    let mut logs = [log(extent.ticks), log(extent.ticks)];
    let mut measured = Measured::default();
    let (mut received, mut sent) = (0, 0);
    // Both sides of a comparison see the machine's other load alike.
    for _ in 0..extent.rounds {
        let (_, load) = noted(row, extent, &open, Sizes::shuffled, &mut logs)?;
        measured.batches.extend(load.batches);
        let bare = forward(row.program(), open()?.map(OneWay, OneWay), 1, extent.length)?;
        check(row, &bare)?;
        (received, sent) = (received + bare.packets.received, sent + bare.packets.sent);
        measured.core.push(bare.core);
        measured.bare.extend(bare.rates);
        let (forwarded, load) = noted(row, extent, &open, || Sizes::Natural, &mut logs)?;
        measured.noted.extend(forwarded.rates);
        measured.full.join(load);
    }
    measured.lost(received, sent);
    Ok(measured)
}

/// Forwards with notes.
fn noted<I: PacketIo>(
    row: &Row,
    extent: &Extent<'_>,
    open: &impl Open<I>,
    sizes: fn() -> Sizes,
    [first, second]: &mut [BatchLog; 2],
) -> anyhow::Result<(Forwarded, Load)> {
    let ports = open()?.map(
        |io| OneWay(Limited::new(Noted::new(io, Some(&mut *first)), sizes())),
        |io| OneWay(Limited::new(Noted::new(io, Some(&mut *second)), sizes())),
    );
    let forwarded = forward(row.program(), ports, 1, extent.length)?;
    check(row, &forwarded)?;
    let mut load = Load::from(first.take());
    load.join(second.take().into());
    Ok((forwarded, load))
}
