//! Tests of internals: PREVAIL without our guards, and the values that its analysis computes.

mod build;
mod gaps;
mod values;
