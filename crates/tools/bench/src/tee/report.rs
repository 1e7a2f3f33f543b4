//! The figures of the report.

use p4shield_batch_model::{Estimate, Published};
use serde::Serialize;

use crate::stats::{Percentiles, Spread};

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name of this machine's processor.
    pub processor: String,
    /// Microseconds of a read of the clock, which are subtracted from each time.
    pub clock_read: f64,
    /// The measured rows.
    pub rows: Vec<RowFigures>,
    /// Rows that were not measured.
    pub missing: Vec<Missing>,
    /// The paper's rows.
    pub paper: &'static [Published],
}

/// A row that was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// The row.
    pub row: RowName,
    /// The reason.
    pub reason: String,
}

/// The names of a row.
#[derive(Clone, Debug, Serialize)]
pub struct RowName {
    /// The place of the program: `bare` in the switch's process, `inline` there with its secret part as a
    /// function in C, `secure pipeline, process` with the whole switch in a compartment, or `extern, process`
    /// with that function in one. A compartment that is a virtual machine is `vm`, or `vm (emulated)`.
    pub placement: &'static str,
    /// The kind of the switch's two ports.
    pub ports: String,
    /// Bytes of a packet, without the frame check sequence.
    pub bytes: usize,
    /// Packet threads, each on a core of its own.
    pub threads: usize,
}

/// The figures of a row. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RowFigures {
    /// The row.
    #[serde(flatten)]
    pub row: RowName,
    /// The program.
    pub program: &'static str,
    /// The costs of batches and packets.
    pub costs: Costs,
    /// The modelled time of a full batch (`t_b(32)` in the paper).
    pub full_batch: Estimate,
    /// The modelled maximum beside the measured one.
    pub maximum: Maximum,
    /// How far batches are from the line.
    pub residuals: Vec<Residual>,
    /// The time of 32 packets at full load, divided by what the model assumes; the greatest part first.
    pub parts: Vec<Part>,
    /// The batches of each size.
    pub sizes: Vec<Size>,
    /// The batches at each rate of the sender, for ports that have one.
    pub loads: Vec<Loaded>,
    /// The times of single packets from sender to receiver, for ports that have both.
    pub latencies: Vec<Latency>,
}

/// The costs of a batch and of each of its packets.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// Batches from which they follow.
    pub batches: u64,
    /// A batch's input and output.
    pub a_io: Estimate,
    /// A packet's input and output.
    pub b_io: Estimate,
    /// A batch's processing.
    pub a_p: Estimate,
    /// A packet's processing.
    pub b_p: Estimate,
    /// The share of input and output in the time of a full batch.
    pub io_share: f64,
}

/// The most million packets a second.
#[derive(Clone, Debug, Serialize)]
pub struct Maximum {
    /// That follows from the model (`r'max` in the paper).
    pub modelled: f64,
    /// That was measured, without notes.
    pub measured: Spread,
    /// `modelled` over `measured`.
    pub ratio: f64,
    /// True if both agree within 10 %.
    pub holds: bool,
    /// That was measured with notes, by turns with the one without.
    pub noted: Spread,
    /// `noted` over `measured`: what the notes themselves cost.
    pub noted_of_bare: f64,
    /// The part of the time in which the first thread had its core, percent. Other processes had the rest,
    /// which the model does not know.
    pub core_percent: f64,
    /// Packets that the switch received and did not send, percent; where there is a sender, those that it
    /// sent and that did not arrive.
    pub lost_percent: f64,
    /// The comparison with a row that was measured beside this one.
    pub compared: Option<Compared>,
    /// The time of a batch in the switch at this rate.
    pub micros: Percentiles,
}

/// A maximum over that of another row in the same round.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The placement of the other row.
    pub with: &'static str,
    /// As both were measured.
    pub measured: Spread,
    /// The same, of the time in which each thread did not wait for its core.
    pub of_core: Spread,
}

/// The difference of batches from the line.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Residual {
    /// Packets of the smallest batch.
    pub from: u32,
    /// Packets of the largest one.
    pub to: u32,
    /// Number of batches.
    pub batches: u64,
    /// The time that they take beyond the line, percent.
    pub percent: f64,
}

/// An assumption of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assumption {
    /// The model's own part: a full batch.
    Model,
    /// Batches are full at the highest rate.
    FullBatches,
    /// The time of a batch is linear in its packets, and depends on nothing else.
    Line,
    /// No batch takes ten times as long as others of its size.
    NoInterruption,
    /// The sender is faster than the switch, so that no round is empty.
    SenderIsFaster,
    /// No time passes between batches.
    NothingBetween,
    /// Every packet that the switch receives is sent.
    NothingLost,
    /// The noted batches are like those after them.
    SteadyRate,
    /// The notes cost nothing.
    NoNotes,
}

impl Assumption {
    /// Returns the assumption as a sentence.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Model => "a full batch, as the model has it",
            Self::FullBatches => "batches are full at the highest rate",
            Self::Line => "the time of a batch is linear in its packets, and depends on nothing else",
            Self::NoInterruption => "no batch takes ten times as long as others of its size",
            Self::SenderIsFaster => "the sender is faster than the switch, so that no round is empty",
            Self::NothingBetween => "no time passes between batches",
            Self::NothingLost => "every packet that the switch receives is sent",
            Self::SteadyRate => "the noted batches are like those after them",
            Self::NoNotes => "the notes cost nothing",
        }
    }
}

/// A part of the time that 32 packets take at full load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Part {
    /// The assumption under which it would be nothing.
    pub assumption: Assumption,
    /// Microseconds; less than nothing if they take shorter.
    pub micros: f64,
    /// Their share, percent.
    pub percent: f64,
    /// True if it tells modelled and measured maximum apart, where they differ by more than 10 %.
    pub explains: bool,
}

/// The batches of a size: medians of the steps, and the time of all three.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// Packets of a batch.
    pub packets: u32,
    /// Number of batches.
    pub batches: u64,
    /// Time to receive.
    pub receive: f64,
    /// Time to process.
    pub process: f64,
    /// Time to send.
    pub send: f64,
    /// The time of all three.
    pub micros: Percentiles,
}

/// The batches at a rate of the sender.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Loaded {
    /// Million packets a second that the sender was told to send.
    pub offered_mpps: f64,
    /// Those that the switch received.
    pub received_mpps: f64,
    /// Number of batches.
    pub batches: u64,
    /// Packets of a batch, on average.
    pub mean_packets: f64,
    /// The time of a batch in the switch.
    pub micros: Percentiles,
}

/// The time of a packet through the switch, from the sender's call to the receiver's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Million other packets a second meanwhile.
    pub others_mpps: f64,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Microseconds.
    pub micros: Percentiles,
}
