//! The life of a switch, from any bytes: a program, then packets, writes, ports that come and go, other
//! programs, compartments, recordings and time. Entry point for fuzzing.

mod compartment;
mod draw;
mod life;
mod ports;
mod programs;
mod threads;

pub use life::life;
pub use programs::Programs;

#[cfg(test)]
mod tests;
