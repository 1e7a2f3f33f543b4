//! The model of a row from its batches, beside the measured maximum, and the parts that tell both apart.

use std::collections::BTreeMap;

use p4shield_batch_model::{BATCH, Batch, Estimate, FitError, Line, Model};

use super::place::Place;
use super::report::{Assumption, Compared, Costs, Latency, Loaded, Maximum, Part, Residual, Size};
use super::sizes::Load;
use crate::stats::{Percentiles, Spread};

/// A batch is interrupted that takes so many times the median of its size.
const INTERRUPTED: f64 = 10.0;
/// The model holds if its maximum is between these parts of the measured one.
const HOLDS: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// A part of the time that is worth a line, percent.
const NOTABLE: f64 = 3.0;
/// Sizes of batches by whose residuals a bend of the line shows.
const GROUPS: [[u32; 2]; 5] = [[1, 4], [5, 8], [9, 16], [17, 24], [25, 32]];

/// The batches and rates of a row.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Batches of all sizes.
    pub(super) batches: Vec<Batch>,
    /// Those at full load.
    pub(super) full: Load,
    /// Million packets a second at full load of each round, without notes and with them.
    pub(super) bare: Vec<f64>,
    pub(super) noted: Vec<f64>,
    /// The part of the time in which the thread had its core, of each round without notes.
    pub(super) core: Vec<f64>,
    /// Packets that were lost, percent.
    pub(super) lost_percent: f64,
    /// Packets of a sender, and those that arrived.
    pub(super) offered: u64,
    pub(super) forwarded: u64,
    /// The rates of a sender, from the lowest, where there is one.
    pub(super) rates: Vec<Rate>,
    /// The times of single packets, where there are a sender and a receiver.
    pub(super) latencies: Vec<Latency>,
    /// The comparison with a row that was measured beside this one.
    pub(super) compared: Option<Compared>,
}

impl Measured {
    /// Keeps the share of packets that were lost.
    pub(super) fn lost(&mut self, received: u64, sent: u64) {
        self.lost_percent = 100.0 * received.saturating_sub(sent) as f64 / received.max(1) as f64;
    }
}

/// Compares the maximum of each round with that of the row that its placement names, in the same round.
pub(super) fn compare(places: &[Place], all: &mut [Measured]) {
    for n in 0..places.len() {
        let Some(with) = places[n].compared_with else { continue };
        let Some(whole) = places.iter().position(|place| place.name == with) else { continue };
        let (own, whole) = (&all[n], &all[whole]);
        let of = |rate: fn(&Measured, usize) -> f64| {
            let rounds = own.bare.len().min(whole.bare.len());
            Spread::of((0..rounds).map(|n| rate(own, n) / rate(whole, n)).collect())
        };
        let (measured, of_core) = (of(|m, n| m.bare[n]), of(|m, n| m.bare[n] / m.core[n]));
        all[n].compared = Some(Compared { with, measured, of_core });
    }
}

/// The batches at a sender's rate.
#[derive(Debug)]
pub(super) struct Rate {
    /// Million packets a second that the sender was told to send.
    pub(super) offered: f64,
    /// Those that the switch received.
    pub(super) received: f64,
    pub(super) batches: Vec<Batch>,
}

/// The model of a row, beside its measured maximum.
#[derive(Debug)]
pub(super) struct Fit {
    pub(super) costs: Costs,
    pub(super) full_batch: Estimate,
    pub(super) maximum: Maximum,
    pub(super) sizes: Vec<Size>,
    pub(super) residuals: Vec<Residual>,
    pub(super) parts: Vec<Part>,
    pub(super) loads: Vec<Loaded>,
    pub(super) latencies: Vec<Latency>,
}

/// Returns the time of a batch in the switch.
fn time(batch: &Batch) -> f64 {
    batch.receive + batch.process + batch.send
}

fn percentiles<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Percentiles {
    Percentiles::of(&mut batches.into_iter().map(time).collect::<Vec<_>>())
}

/// Fits the model to what was measured on so many threads.
///
/// # Errors
/// [`FitError`]: no line follows from the batches.
pub(super) fn fit(measured: Measured, threads: usize) -> Result<Fit, FitError> {
    let sizes = sizes(&measured.batches);
    let medians: BTreeMap<_, _> = sizes.iter().map(|size| (size.packets, size.micros.p50)).collect();
    let is_interrupted =
        |b: &Batch| medians.get(&b.packets).is_some_and(|median| time(b) > INTERRUPTED * median);
    let mut model = Model::default();
    measured.batches.iter().filter(|b| !is_interrupted(b)).for_each(|batch| model.add(batch));
    let (io, process, full_batch) = (model.io()?, model.process()?, model.full_batch()?);
    let line = |packets: f64| io.a.value + process.a.value + (io.b.value + process.b.value) * packets;
    let modelled = threads as f64 * f64::from(BATCH) / full_batch.value;
    let (bare, noted) = (Spread::of(measured.bare), Spread::of(measured.noted));
    let whole = |rate: f64| threads as f64 * f64::from(BATCH) / rate;
    let mut parts = parts(&measured.full, &line, &is_interrupted, [whole(bare.median), whole(noted.median)]);
    let ratio = modelled / bare.median;
    let holds = HOLDS.contains(&ratio);
    parts.sort_by(|a, b| b.percent.abs().total_cmp(&a.percent.abs()));
    if !holds {
        explain(&mut parts);
    }
    Ok(Fit {
        residuals: residuals(&measured.batches, &line, &is_interrupted),
        maximum: Maximum {
            modelled,
            ratio,
            holds,
            noted_of_bare: noted.median / bare.median,
            measured: bare,
            noted,
            core_percent: 100.0 * Spread::of(measured.core).median,
            lost_percent: measured.lost_percent,
            compared: measured.compared,
            micros: percentiles(&measured.full.batches),
        },
        costs: costs(&io, &process, model.batches()),
        full_batch,
        sizes,
        parts,
        loads: measured.rates.iter().map(loaded).collect(),
        latencies: measured.latencies,
    })
}

/// Marks the parts that tell modelled and measured maximum apart: each notable one, and as many of the
/// others, from the greatest on, as leave less than a notable part unexplained.
fn explain(parts: &mut [Part]) {
    let others = || parts.iter().filter(|part| part.assumption != Assumption::Model);
    let mut left: f64 = others().map(|part| part.percent).sum();
    for part in parts.iter_mut().filter(|part| part.assumption != Assumption::Model) {
        let helps = left.abs() > NOTABLE && left.signum() == part.percent.signum();
        part.explains = part.percent.abs() > NOTABLE || helps;
        left -= if part.explains { part.percent } else { 0.0 };
    }
}

fn costs(io: &Line, process: &Line, batches: u64) -> Costs {
    let full = |line: &Line| line.a.value + line.b.value * f64::from(BATCH);
    let io_share = full(io) / (full(io) + full(process));
    Costs { batches, a_io: io.a, b_io: io.b, a_p: process.a, b_p: process.b, io_share }
}

/// Describes the batches of each size.
fn sizes(batches: &[Batch]) -> Vec<Size> {
    let mut by_size: BTreeMap<u32, Vec<&Batch>> = BTreeMap::new();
    for batch in batches {
        by_size.entry(batch.packets).or_default().push(batch);
    }
    let describe = |(packets, batches): (u32, Vec<&Batch>)| {
        let median = |step: fn(&Batch) -> f64| {
            Percentiles::of(&mut batches.iter().map(|b| step(b)).collect::<Vec<_>>()).p50
        };
        Size {
            packets,
            batches: batches.len() as u64,
            receive: median(|b| b.receive),
            process: median(|b| b.process),
            send: median(|b| b.send),
            micros: percentiles(batches.iter().copied()),
        }
    };
    by_size.into_iter().map(describe).collect()
}

/// Returns how far batches are from the line on average, by size.
fn residuals(
    batches: &[Batch],
    line: &impl Fn(f64) -> f64,
    is_interrupted: &impl Fn(&Batch) -> bool,
) -> Vec<Residual> {
    let residual = |[from, to]: [u32; 2]| {
        let group = batches.iter().filter(|b| (from..=to).contains(&b.packets) && !is_interrupted(b));
        let (mut count, mut measured, mut modelled) = (0_u64, 0.0, 0.0);
        for batch in group {
            count += 1;
            measured += time(batch);
            modelled += line(batch.packets.into());
        }
        let percent = 100.0 * (measured / modelled - 1.0);
        (count > 0).then_some(Residual { from, to, batches: count, percent })
    };
    GROUPS.into_iter().filter_map(residual).collect()
}

/// Divides the time that 32 packets take at full load into that of the model and what the model leaves out.
/// `whole` is that time without notes and with them. The parts' sum is the former.
fn parts(
    full: &Load,
    line: &impl Fn(f64) -> f64,
    is_interrupted: &impl Fn(&Batch) -> bool,
    [bare, noted]: [f64; 2],
) -> Vec<Part> {
    let size = f64::from(BATCH);
    let packets: f64 = full.batches.iter().map(|b| f64::from(b.packets)).sum();
    let each = size / packets;
    let (mut all, mut by_line, mut beyond, mut lost) = (0.0, 0.0, 0.0, 0.0);
    for batch in &full.batches {
        let (time, line) = (time(batch), line(batch.packets.into()));
        all += time;
        by_line += line;
        *if is_interrupted(batch) { &mut lost } else { &mut beyond } += time - line;
    }
    let found = [
        (Assumption::Model, line(size)),
        (Assumption::FullBatches, by_line * each - line(size)),
        (Assumption::Line, beyond * each),
        (Assumption::NoInterruption, lost * each),
        (Assumption::SenderIsFaster, full.empty * each),
        (Assumption::NothingBetween, (full.micros - full.empty - all) * each),
        // Half the time for nothing, if half the packets are lost: only those that arrive count in a rate.
        (Assumption::NothingLost, full.micros * each * (1.0 / full.sent() - 1.0)),
        // The notes may cover another part of the time than the rate does.
        (Assumption::SteadyRate, noted - full.micros * each / full.sent()),
        (Assumption::NoNotes, bare - noted),
    ];
    let part = |(assumption, micros): (Assumption, f64)| Part {
        assumption,
        micros,
        percent: 100.0 * micros / bare,
        explains: false,
    };
    found.into_iter().map(part).collect()
}

fn loaded(rate: &Rate) -> Loaded {
    let packets: f64 = rate.batches.iter().map(|b| f64::from(b.packets)).sum();
    Loaded {
        offered_mpps: rate.offered,
        received_mpps: rate.received,
        batches: rate.batches.len() as u64,
        mean_packets: packets / rate.batches.len() as f64,
        micros: percentiles(&rate.batches),
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::{BARE, INLINE};
    use super::*;

    /// A batch that takes as long as a line says.
    fn batch(packets: u32) -> Batch {
        let n = f64::from(packets);
        Batch { packets, receive: 0.3 + 0.02 * n, process: 0.1 + 0.03 * n, send: 0.2 + 0.01 * n }
    }

    /// Batches of all sizes, and a hundred full ones with this time between two.
    fn measured(between: f64) -> Measured {
        let full = vec![batch(BATCH); 100];
        let micros = full.iter().map(|b| time(b) + between).sum::<f64>();
        let rate = 3200.0 / micros;
        Measured {
            batches: (0..320).map(|n| batch(1 + n % BATCH)).collect(),
            full: Load { batches: full, micros, ..Load::default() },
            bare: vec![rate],
            noted: vec![rate],
            ..Measured::default()
        }
    }

    fn sum(fit: &Fit) -> f64 {
        fit.parts.iter().map(|part| part.micros).sum()
    }

    fn part(fit: &Fit, assumption: Assumption) -> Part {
        *fit.parts.iter().find(|part| part.assumption == assumption).unwrap()
    }

    #[test]
    fn batches_on_a_line_give_it_back_with_its_maximum() {
        let fit = fit(measured(0.0), 1).unwrap();
        let Costs { a_io, b_io, a_p, b_p, io_share, batches } = fit.costs;
        let found = [a_io.value, b_io.value, a_p.value, b_p.value, io_share, fit.full_batch.value];
        for (found, expected) in found.into_iter().zip([0.5, 0.03, 0.1, 0.03, 1.46 / 2.52, 2.52]) {
            assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
        }
        let Maximum { modelled, ratio, holds, .. } = fit.maximum;
        assert!((modelled - 32.0 / 2.52).abs() < 1e-9 && (ratio - 1.0).abs() < 1e-9 && holds);
        assert_eq!((batches, fit.sizes.len()), (320, 32));
        assert!(fit.residuals.iter().all(|r| r.percent.abs() < 1e-9), "{:?}", fit.residuals);
        assert!(fit.parts.iter().all(|part| !part.explains), "{:?}", fit.parts);
    }

    #[test]
    fn time_between_batches_explains_a_lower_maximum() {
        let fit = fit(measured(1.0), 1).unwrap();
        assert!(!fit.maximum.holds && (fit.maximum.ratio - 3.52 / 2.52).abs() < 1e-9);
        assert!((sum(&fit) - 3.52).abs() < 1e-9, "{:?}", fit.parts);
        let between = part(&fit, Assumption::NothingBetween);
        assert!(between.explains && (between.micros - 1.0).abs() < 1e-9, "{between:?}");
        let explains: Vec<_> = fit.parts.iter().filter(|p| p.explains).map(|p| p.assumption).collect();
        assert_eq!(explains, [Assumption::NothingBetween]);
    }

    #[test]
    fn interrupted_batches_are_left_out_of_the_line_and_named() {
        let mut measured = measured(0.0);
        let interrupted = Batch { process: 100.0, ..batch(BATCH) };
        measured.batches.push(interrupted);
        measured.full.batches.push(interrupted);
        measured.full.micros += time(&interrupted);
        let rate = 3232.0 / measured.full.micros;
        (measured.bare, measured.noted) = (vec![rate], vec![rate]);
        let fit = fit(measured, 1).unwrap();
        assert!((fit.costs.b_p.value - 0.03).abs() < 1e-9, "{:?}", fit.costs);
        let lost = part(&fit, Assumption::NoInterruption);
        assert!(lost.explains && (lost.micros - 98.94 / 101.0).abs() < 1e-9, "{lost:?}");
        assert!((sum(&fit) - 32.0 / rate).abs() < 1e-9, "{:?}", fit.parts);
    }

    #[test]
    fn batches_that_are_not_full_are_named() {
        let mut measured = measured(0.0);
        measured.full.batches = vec![batch(8); 100];
        measured.full.micros = 100.0 * time(&batch(8));
        let rate = 800.0 / measured.full.micros;
        (measured.bare, measured.noted) = (vec![rate], vec![rate]);
        let fit = fit(measured, 1).unwrap();
        let unfilled = part(&fit, Assumption::FullBatches);
        // Four batches of 8 have three times the constant cost more than one of 32.
        assert!(unfilled.explains && (unfilled.micros - 3.0 * 0.6).abs() < 1e-9, "{unfilled:?}");
        assert!((sum(&fit) - 32.0 / rate).abs() < 1e-9, "{:?}", fit.parts);
    }

    #[test]
    fn packets_that_the_switch_loses_are_named() {
        let mut measured = measured(0.0);
        (measured.full.received, measured.full.dropped) = (8000, 4000);
        measured.bare[0] /= 2.0;
        measured.noted[0] /= 2.0;
        let fit = fit(measured, 1).unwrap();
        let lost = part(&fit, Assumption::NothingLost);
        assert!(lost.explains && (lost.percent - 50.0).abs() < 1e-9, "{lost:?}");
        assert!(part(&fit, Assumption::SteadyRate).micros.abs() < 1e-9);
        assert!((sum(&fit) - 2.0 * 2.52).abs() < 1e-9, "{:?}", fit.parts);
    }

    #[test]
    fn a_bend_shows_in_the_residuals() {
        let mut measured = measured(0.0);
        measured.batches.iter_mut().for_each(|b| b.process += 0.002 * f64::from(b.packets).powi(2));
        let residuals = fit(measured, 1).unwrap().residuals;
        let percents: Vec<_> = residuals.iter().map(|r| r.percent > 0.0).collect();
        assert_eq!(percents, [true, true, false, false, true], "{residuals:?}");
    }

    #[test]
    fn many_small_parts_explain_together() {
        let assumptions = [Assumption::FullBatches, Assumption::Line, Assumption::NothingBetween];
        let part = |(assumption, percent)| Part { assumption, micros: 0.0, percent, explains: false };
        let explained = |percents: [f64; 3]| {
            let all = std::iter::once((Assumption::Model, 90.0)).chain(assumptions.into_iter().zip(percents));
            let mut parts: Vec<_> = all.map(part).collect();
            explain(&mut parts);
            parts.iter().map(|part| part.explains).collect::<Vec<_>>()
        };
        assert_eq!(explained([2.9, 2.8, 2.7]), [false, true, true, false], "2.7 are left");
        assert_eq!(explained([2.9, -2.8, 2.7]), [false, false, false, false], "there is nothing to explain");
        assert_eq!(explained([8.0, 2.0, -4.0]), [false, true, false, true]);
    }

    #[test]
    fn rows_are_compared_round_by_round() {
        let of = |bare: [f64; 3], core| Measured { bare: bare.into(), core: vec![core; 3], ..measured(0.0) };
        let mut all = [of([9.0; 3], 1.0), of([2.0, 4.0, 8.0], 1.0), of([1.0, 3.0, 8.0], 0.5)];
        let last = Place { name: "extern", compared_with: Some(INLINE.name), ..INLINE };
        compare(&[BARE, INLINE, last], &mut all);
        assert!(all[0].compared.is_none());
        let Compared { with, measured, of_core } = all[2].compared.clone().unwrap();
        assert_eq!((with, measured.rounds), ("inline", vec![0.5, 0.75, 1.0]));
        assert_eq!(of_core.rounds, [1.0, 1.5, 2.0]);
        assert_eq!(all[1].compared.as_ref().unwrap().with, "bare");
    }

    #[test]
    fn two_threads_have_twice_the_modelled_maximum() {
        let modelled = [1, 2].map(|threads| fit(measured(0.0), threads).unwrap().maximum.modelled);
        assert!((modelled[1] - 2.0 * modelled[0]).abs() < 1e-9);
    }

    #[test]
    fn batches_of_one_size_have_no_line() {
        let mut measured = measured(0.0);
        measured.batches = vec![batch(BATCH), batch(BATCH), Batch { send: 1.0, ..batch(BATCH) }];
        assert_eq!(fit(measured, 1).unwrap_err(), FitError::OneSize(32.0));
    }
}
