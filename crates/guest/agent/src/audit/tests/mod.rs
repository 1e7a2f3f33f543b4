//! The engine against honest and malicious clouds, simulated millisecond by millisecond.

mod cloud;
mod honest;
mod malicious;
