//! Rows whose ports always have a packet: batches have the size that the switch asks for.

use p4shield_switch::PacketIo;

use super::fit::Measured;
use super::noted::{Load, Noted, Notes, Sizes, Ticks};
use super::row::{Extent, Row};
use crate::fixture::forward::{Forwarded, forward};
use crate::fixture::opened::{Opened, in_memory, null_devices};
use crate::fixture::ports::OneWay;

/// Measures over ports in memory.
pub(super) fn memory(row: &Row, extent: &Extent<'_>) -> anyhow::Result<Measured> {
    measure(row, extent, || Ok(in_memory(row.bytes, row.threads)))
}

/// Measures over DPDK's devices that always have packets.
pub(super) fn net_null(row: &Row, extent: &Extent<'_>) -> anyhow::Result<Measured> {
    measure(row, extent, || null_devices(row.bytes, row.threads))
}

/// Opens the ports of a row.
trait Open<I>: Fn() -> anyhow::Result<Opened<'static, I>> {}
impl<I, F: Fn() -> anyhow::Result<Opened<'static, I>>> Open<I> for F {}

fn measure<I: PacketIo>(row: &Row, extent: &Extent<'_>, open: impl Open<I>) -> anyhow::Result<Measured> {
    let mut notes = [Notes::default(), Notes::default()];
    let mut measured = Measured::default();
    // Both sides of a comparison see the machine's other load alike.
    for _ in 0..extent.rounds {
        let (_, load) = noted(row, extent, &open, Sizes::shuffled, &mut notes)?;
        measured.batches.extend(load.batches);
        let bare = forward(row.program, open()?.map(OneWay, OneWay), 1, extent.length)?;
        bare.check(row.program)?;
        measured.core.push(bare.core);
        measured.bare.extend(bare.rates);
        let (forwarded, load) = noted(row, extent, &open, || Sizes::Natural, &mut notes)?;
        measured.noted.extend(forwarded.rates);
        measured.full.join(load);
    }
    Ok(measured)
}

/// Forwards with notes.
fn noted<I: PacketIo>(
    row: &Row,
    extent: &Extent<'_>,
    open: &impl Open<I>,
    sizes: fn() -> Sizes,
    [first, second]: &mut [Notes; 2],
) -> anyhow::Result<(Forwarded, Load)> {
    let ticks: &Ticks = extent.ticks;
    let ports = open()?.map(
        |io| OneWay(Noted::new(io, ticks, first, sizes())),
        |io| OneWay(Noted::new(io, ticks, second, sizes())),
    );
    let forwarded = forward(row.program, ports, 1, extent.length)?;
    forwarded.check(row.program)?;
    let mut load = first.take(ticks);
    load.join(second.take(ticks));
    Ok((forwarded, load))
}
