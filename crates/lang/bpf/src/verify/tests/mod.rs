//! Tests that look inside: at PREVAIL without our guards, and at what its analysis computes.

mod build;
mod gaps;
mod values;
