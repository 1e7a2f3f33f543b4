//! The lines of the three steps, and what follows from them.

use crate::line::{Estimate, FitError, Line, Samples};
use serde::Serialize;

/// Packets of a full batch.
pub const BATCH: u32 = 32;

/// The times of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// Its packets.
    pub packets: u32,
    /// Time to receive them.
    pub receive: f64,
    /// Time to process them.
    pub process: f64,
    /// Time to send them.
    pub send: f64,
}

/// The costs of batches and packets: of input and output together (`io`), and of processing (`p`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// A batch's input and output.
    pub a_io: f64,
    /// A packet's input and output.
    pub b_io: f64,
    /// A batch's processing.
    pub a_p: f64,
    /// A packet's processing.
    pub b_p: f64,
}

impl Costs {
    /// Returns the time of a batch.
    #[must_use]
    pub fn batch(&self, packets: u32) -> f64 {
        self.io(packets) + self.a_p + f64::from(packets) * self.b_p
    }

    /// Returns the time of a batch's input and output.
    #[must_use]
    pub fn io(&self, packets: u32) -> f64 {
        self.a_io + f64::from(packets) * self.b_io
    }

    /// Returns the share of input and output in the time of a batch.
    #[must_use]
    pub fn io_share(&self, packets: u32) -> f64 {
        self.io(packets) / self.batch(packets)
    }

    /// Returns the most packets a second, in millions, at which every batch is full (`r'max` in the paper).
    #[must_use]
    pub fn max_rate(&self) -> f64 {
        f64::from(BATCH) / self.batch(BATCH)
    }
}

/// The model of a switch, from the times of its batches.
#[derive(Clone, Debug, Default)]
pub struct Model {
    receive: Samples,
    process: Samples,
    send: Samples,
    /// Sums of receiving and sending, and of all three: a line through sums is the sum of the lines.
    io: Samples,
    total: Samples,
}

impl Model {
    /// Adds a batch. One without packets says nothing, and is left out.
    pub fn add(&mut self, batch: &Batch) {
        let Batch { packets, receive, process, send } = *batch;
        if packets == 0 {
            return;
        }
        self.receive.add(packets, receive);
        self.process.add(packets, process);
        self.send.add(packets, send);
        self.io.add(packets, receive + send);
        self.total.add(packets, receive + process + send);
    }

    /// Returns the lines: of receiving, processing and sending.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn lines(&self) -> Result<[Line; 3], FitError> {
        Ok([self.receive.line()?, self.process.line()?, self.send.line()?])
    }

    /// Returns the line of input and output together. It exists also where one of both takes no time.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn io(&self) -> Result<Line, FitError> {
        self.io.line()
    }

    /// Returns the line of processing.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn process(&self) -> Result<Line, FitError> {
        self.process.line()
    }

    /// Returns the costs.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn costs(&self) -> Result<Costs, FitError> {
        let (io, process) = (self.io()?, self.process()?);
        Ok(Costs { a_io: io.a.value, b_io: io.b.value, a_p: process.a.value, b_p: process.b.value })
    }

    /// Returns the time of a full batch (`t_b(32)` in the paper).
    ///
    /// # Errors
    /// [`FitError`].
    pub fn full_batch(&self) -> Result<Estimate, FitError> {
        self.total.at(BATCH)
    }

    /// Returns the number of batches.
    #[must_use]
    pub const fn batches(&self) -> u64 {
        self.total.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::{PUBLISHED, Published};

    #[test]
    fn every_published_maximum_follows_from_its_row() {
        for row in &PUBLISHED {
            let follows = row.costs.max_rate();
            assert_eq!(format!("{follows:.2}"), format!("{:.2}", row.modelled), "{row:?}");
        }
        let [vm, snp] = [PUBLISHED[3], PUBLISHED[2]].map(|row| row.costs.io(BATCH));
        assert_eq!(format!("{vm:.2} {snp:.2}"), "44.54 59.44", "as the paper's text has it");
        assert!((PUBLISHED[0].costs.io_share(BATCH) - 0.7918).abs() < 1e-3);
    }

    /// Numbers that look random, from -1 to 1, about 0: a sum of four uniform ones.
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            // Marsaglia's xorshift64.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 as f64 / u64::MAX as f64 - 0.5
        }

        fn next(&mut self) -> f64 {
            (0..4).map(|_| self.uniform()).sum::<f64>() / 2.0
        }
    }

    /// A model of batches as a row's switch would make them, half of the I/O for each direction.
    fn synthetic(row: &Costs, noise: &mut Noise) -> Model {
        let Costs { a_io, b_io, a_p, b_p } = *row;
        let mut model = Model::default();
        for round in 0..400 {
            let packets = 1 + round % BATCH;
            let n = f64::from(packets);
            // A constant keeps times above zero, which the published lines are not everywhere.
            let time = |a: f64, b: f64, noise: f64| 1.0 + a + n * b + noise / 4.0;
            let (receive, send) = (noise.next(), noise.next());
            model.add(&Batch {
                packets,
                receive: time(a_io / 2.0, b_io / 2.0, receive),
                process: time(a_p, b_p, noise.next()),
                send: time(a_io / 2.0, b_io / 2.0, send),
            });
        }
        model
    }

    #[test]
    fn batches_with_noise_give_the_parameters_of_their_row_back() {
        let mut noise = Noise(34);
        let (mut inside, mut all) = (0, 0);
        for Published { costs, processor, .. } in PUBLISHED {
            for _ in 0..50 {
                let model = synthetic(&costs, &mut noise);
                let [receive, process, send] = model.lines().unwrap();
                let Costs { a_io, b_io, a_p, b_p } = costs;
                let full = model.full_batch().unwrap();
                let within = [
                    receive.a.contains(1.0 + a_io / 2.0),
                    receive.b.contains(b_io / 2.0),
                    process.a.contains(1.0 + a_p),
                    process.b.contains(b_p),
                    send.b.contains(b_io / 2.0),
                    full.contains(3.0 + costs.batch(BATCH)),
                ];
                inside += within.iter().filter(|within| **within).count();
                all += within.len();
                let found = model.costs().unwrap();
                assert!(
                    (found.b_p - b_p).abs() < 0.02 && (found.b_io - b_io).abs() < 0.02,
                    "{processor}: {found:?}"
                );
            }
        }
        let share = inside as f64 / all as f64;
        assert!(
            (0.93..0.97).contains(&share),
            "an interval contains the value in {share} of all cases, not 95 %"
        );
    }

    #[test]
    fn a_model_of_full_batches_only_is_refused_with_the_reason() {
        let mut model = Model::default();
        model.add(&Batch::default());
        assert_eq!((model.batches(), model.costs().unwrap_err()), (0, FitError::TooFew(0)));
        for n in 0..5 {
            let time = f64::from(n);
            model.add(&Batch { packets: BATCH, receive: time, process: time, send: time });
        }
        let why = model.full_batch().unwrap_err();
        assert_eq!(why.to_string(), "all batches have 32 packets: measure at more than one rate");
    }
}
