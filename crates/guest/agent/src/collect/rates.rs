//! Traffic rates of an interface over a sliding window.

use std::collections::VecDeque;

use super::parse::Counters;

/// Rates of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Received, bits per second.
    pub rx_bps: u64,
    /// Transmitted, bits per second.
    pub tx_bps: u64,
    /// Received, packets per second.
    pub rx_pps: u64,
    /// Transmitted, packets per second.
    pub tx_pps: u64,
}

/// Recent counters of an interface.
#[derive(Debug)]
pub struct Meter {
    window_ns: u64,
    samples: VecDeque<(u64, Counters)>,
    index: u32,
}

impl Meter {
    /// Creates a meter over the last `window_ns`.
    #[must_use]
    pub const fn new(window_ns: u64) -> Self {
        Self { window_ns, samples: VecDeque::new(), index: 0 }
    }

    /// Adds the counters at `now`; `None` if the interface does not exist. A new interface `index`, or a
    /// counter that decreased, restarts the window. The rates are known from the second sample on.
    pub fn sample(&mut self, now: u64, index: u32, counters: Option<Counters>) -> Option<Rates> {
        let Some(counters) = counters else {
            self.samples.clear();
            return None;
        };
        let fell = self.samples.back().is_some_and(|(_, last)| {
            counters.rx_bytes < last.rx_bytes
                || counters.tx_bytes < last.tx_bytes
                || counters.rx_packets < last.rx_packets
                || counters.tx_packets < last.tx_packets
        });
        if fell || index != self.index {
            self.samples.clear();
            self.index = index;
        }
        self.samples.push_back((now, counters));
        // The window starts with the newest sample that is at least one window old.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= self.window_ns) {
            self.samples.pop_front();
        }
        let (then, first) = *self.samples.front()?;
        let elapsed = u128::from(now.checked_sub(then).filter(|e| *e > 0)?);
        let rate = |to: u64, from: u64, unit: u128| {
            let per_second = u128::from(to - from) * unit * 1_000_000_000 / elapsed;
            u64::try_from(per_second).unwrap_or(u64::MAX)
        };
        Some(Rates {
            rx_bps: rate(counters.rx_bytes, first.rx_bytes, 8),
            tx_bps: rate(counters.tx_bytes, first.tx_bytes, 8),
            rx_pps: rate(counters.rx_packets, first.rx_packets, 1),
            tx_pps: rate(counters.tx_packets, first.tx_packets, 1),
        })
    }
}

/// Returns a rate in hundredths of a percent of a speed.
#[must_use]
pub fn utilisation(bps: u64, speed_bps: u64) -> Option<u64> {
    let share = (u128::from(bps) * 10_000).checked_div(u128::from(speed_bps))?;
    Some(u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    const fn bytes(n: u64) -> Option<Counters> {
        Some(Counters { rx_bytes: n, rx_packets: n / 100, tx_bytes: 2 * n, tx_packets: n / 50 })
    }

    #[test]
    fn rates_are_per_second_over_the_window() {
        let mut m = Meter::new(S);
        assert_eq!(m.sample(0, 1, bytes(0)), None, "one sample is no rate");
        let r = m.sample(S / 2, 1, bytes(1_000)).unwrap();
        assert_eq!(r, Rates { rx_bps: 16_000, tx_bps: 32_000, rx_pps: 20, tx_pps: 40 });
        m.sample(S, 1, bytes(1_000)).unwrap();
        let r = m.sample(2 * S, 1, bytes(1_000)).unwrap();
        assert_eq!(r.rx_bps, 0, "samples older than the window are dropped");
    }

    #[test]
    fn resets_and_new_interfaces_are_not_traffic() {
        let mut m = Meter::new(S);
        m.sample(0, 1, bytes(1_000_000));
        assert_eq!(m.sample(S / 10, 1, bytes(10)), None, "counters decreased");
        assert_eq!(m.sample(S / 5, 1, bytes(10)).unwrap(), Rates::default());
        assert_eq!(m.sample(S / 2, 2, bytes(5_000_000)), None, "another interface of that name");
        assert_eq!(m.sample(S, 2, None), None, "gone");
        assert_eq!(m.sample(S + 1, 2, bytes(1)), None);
        assert_eq!(m.sample(S + 1, 2, bytes(1)), None, "no time elapsed");
    }

    #[test]
    fn extreme_counters_do_not_overflow() {
        let mut m = Meter::new(S);
        m.sample(0, 1, Some(Counters::default()));
        let all =
            Counters { rx_bytes: u64::MAX, rx_packets: u64::MAX, tx_bytes: u64::MAX, tx_packets: u64::MAX };
        assert_eq!(m.sample(1, 1, Some(all)).unwrap().rx_bps, u64::MAX);
        assert_eq!(utilisation(u64::MAX, 1), Some(u64::MAX));
        assert_eq!(utilisation(5, 0), None);
        assert_eq!(utilisation(500, 1_000), Some(5_000));
    }
}
