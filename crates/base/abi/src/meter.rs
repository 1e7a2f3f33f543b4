//! Meter cells, on which [`crate::helper::METER`] operates.
//!
//! A two-rate three-colour marker (RFC 2698, colour-blind mode). A cell is the value of a map: seven
//! little-endian `u64` in the order of the fields. The control plane writes rates and bursts, the
//! data plane the other fields.

/// Rates and state of one meter. `repr(C)`, 56 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MeterCell {
    /// Committed rate, units per 1000 seconds; a unit is a packet or a byte.
    pub committed_rate: u64,
    /// Committed burst, units. With zero rates and bursts, as at load, every packet is green.
    pub committed_burst: u64,
    /// Peak rate, units per 1000 seconds.
    pub peak_rate: u64,
    /// Peak burst, units.
    pub peak_burst: u64,
    /// Tokens left in the committed bucket, [`TOKENS_PER_UNIT`] per unit: a rate of one adds one
    /// token per nanosecond.
    pub committed_tokens: u64,
    /// Tokens left in the peak bucket.
    pub peak_tokens: u64,
    /// When tokens were added last, in nanoseconds of the mediator's clock; 0 for never.
    pub updated_ns: u64,
}

/// Bytes in a [`MeterCell`].
pub const METER_CELL_SIZE: usize = 56;
const _: () = assert!(size_of::<MeterCell>() == METER_CELL_SIZE);

/// Tokens of one unit.
pub const TOKENS_PER_UNIT: u64 = 1_000_000_000_000;

/// Numbers of the colours.
pub mod colour {
    /// Within the committed rate.
    pub const GREEN: u64 = 0;
    /// Above the committed rate, within the peak rate.
    pub const YELLOW: u64 = 1;
    /// Above the peak rate.
    pub const RED: u64 = 2;
}

impl MeterCell {
    /// Decodes a cell.
    #[must_use]
    pub fn decode(b: &[u8; METER_CELL_SIZE]) -> Self {
        let mut r = crate::bytes::Reader::new(b);
        Self {
            committed_rate: r.u64(),
            committed_burst: r.u64(),
            peak_rate: r.u64(),
            peak_burst: r.u64(),
            committed_tokens: r.u64(),
            peak_tokens: r.u64(),
            updated_ns: r.u64(),
        }
    }

    /// Encodes the cell.
    #[must_use]
    pub fn encode(&self) -> [u8; METER_CELL_SIZE] {
        let mut out = [0; METER_CELL_SIZE];
        let mut w = crate::bytes::Writer::new(&mut out);
        for v in [
            self.committed_rate,
            self.committed_burst,
            self.peak_rate,
            self.peak_burst,
            self.committed_tokens,
            self.peak_tokens,
            self.updated_ns,
        ] {
            w.u64(v);
        }
        out
    }

    /// Takes `amount` units at `now_ns` and returns the colour.
    pub fn take(&mut self, amount: u64, now_ns: u64) -> u64 {
        if self.peak_burst == 0 && self.committed_burst == 0 {
            return colour::GREEN;
        }
        // An unused cell starts with full buckets.
        let elapsed = if self.updated_ns == 0 { u64::MAX } else { now_ns.saturating_sub(self.updated_ns) };
        self.updated_ns = now_ns.max(self.updated_ns).max(1);
        let filled = |tokens: u64, rate: u64, burst: u64| {
            let full = burst.saturating_mul(TOKENS_PER_UNIT);
            if elapsed == u64::MAX {
                full
            } else {
                tokens.saturating_add(rate.saturating_mul(elapsed)).min(full)
            }
        };
        self.committed_tokens = filled(self.committed_tokens, self.committed_rate, self.committed_burst);
        self.peak_tokens = filled(self.peak_tokens, self.peak_rate, self.peak_burst);
        let wanted = amount.saturating_mul(TOKENS_PER_UNIT);
        if self.peak_tokens < wanted {
            return colour::RED;
        }
        self.peak_tokens -= wanted;
        if self.committed_tokens < wanted {
            return colour::YELLOW;
        }
        self.committed_tokens -= wanted;
        colour::GREEN
    }
}
