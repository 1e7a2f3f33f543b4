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
    /// The sum of the three: a line through sums is the sum of the lines.
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
        self.total.add(packets, receive + process + send);
    }

    /// Returns the lines: of receiving, processing and sending.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn lines(&self) -> Result<[Line; 3], FitError> {
        Ok([self.receive.line()?, self.process.line()?, self.send.line()?])
    }

    /// Returns the costs.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn costs(&self) -> Result<Costs, FitError> {
        let [receive, process, send] = self.lines()?;
        Ok(Costs {
            a_io: receive.a.value + send.a.value,
            b_io: receive.b.value + send.b.value,
            a_p: process.a.value,
            b_p: process.b.value,
        })
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

    /// The rows of the paper's table: processor, mode and driver, `a_io`, `b_io`, `a_p`, `b_p`, and the
    /// published maximum, in million packets a second.
    const PUBLISHED: [(&str, [f64; 4], &str); 18] = [
        ("9354, XDP", [3.008, 1.420, -0.063, 0.400], "0.52"),
        ("9354, ICE", [-0.011, 0.010, 0.072, 0.441], "2.21"),
        ("9354, SNP, XDP", [10.193, 1.539, -0.080, 0.408], "0.44"),
        ("9354, VM, XDP", [6.137, 1.200, -0.108, 0.406], "0.56"),
        ("9354, VM, ICE", [-0.001, 0.011, -0.024, 0.438], "2.23"),
        ("7543, XDP", [2.727, 1.842, -0.100, 0.424], "0.43"),
        ("7543, ICE", [0.085, 0.012, -0.027, 0.461], "2.11"),
        ("7543, SNP, XDP", [10.565, 1.588, -0.071, 0.429], "0.43"),
        ("7543, VM, XDP", [6.200, 1.261, -0.097, 0.431], "0.53"),
        ("7543, VM, ICE", [0.071, 0.012, -0.013, 0.458], "2.12"),
        ("6421N, XDP", [1.888, 0.991, 0.007, 0.341], "0.72"),
        ("6421N, ICE", [0.0, 0.0, -0.066, 0.378], "2.66"),
        ("6421N, SGX, XDP", [2.056, 1.039, 0.237, 4.098], "0.19"),
        ("6421N, SGX, ICE", [0.298, -0.004, 46.199, 2.249], "0.27"),
        ("6312U, XDP", [1.630, 0.865, -0.070, 0.400], "0.76"),
        ("6312U, ICE", [-0.011, 0.003, -0.071, 0.417], "2.40"),
        ("6312U, SGX, XDP", [2.048, 0.896, 0.319, 4.964], "0.17"),
        ("6312U, SGX, ICE", [0.229, -0.001, 85.392, 1.560], "0.24"),
    ];

    fn costs([a_io, b_io, a_p, b_p]: [f64; 4]) -> Costs {
        Costs { a_io, b_io, a_p, b_p }
    }

    #[test]
    fn every_published_maximum_follows_from_its_row() {
        for (name, row, published) in PUBLISHED {
            assert_eq!(format!("{:.2}", costs(row).max_rate()), published, "{name}");
        }
        let [vm, snp] = [PUBLISHED[3], PUBLISHED[2]].map(|row| costs(row.1).io(BATCH));
        assert_eq!(format!("{vm:.2} {snp:.2}"), "44.54 59.44", "as the paper's text has it");
        assert!((costs(PUBLISHED[0].1).io_share(BATCH) - 0.7918).abs() < 1e-3);
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
    fn synthetic(row: [f64; 4], noise: &mut Noise) -> Model {
        let Costs { a_io, b_io, a_p, b_p } = costs(row);
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
        for (name, row, _) in PUBLISHED {
            for _ in 0..50 {
                let model = synthetic(row, &mut noise);
                let [receive, process, send] = model.lines().unwrap();
                let Costs { a_io, b_io, a_p, b_p } = costs(row);
                let full = model.full_batch().unwrap();
                let within = [
                    receive.a.contains(1.0 + a_io / 2.0),
                    receive.b.contains(b_io / 2.0),
                    process.a.contains(1.0 + a_p),
                    process.b.contains(b_p),
                    send.b.contains(b_io / 2.0),
                    full.contains(3.0 + costs(row).batch(BATCH)),
                ];
                inside += within.iter().filter(|within| **within).count();
                all += within.len();
                let found = model.costs().unwrap();
                assert!(
                    (found.b_p - b_p).abs() < 0.02 && (found.b_io - b_io).abs() < 0.02,
                    "{name}: {found:?}"
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
