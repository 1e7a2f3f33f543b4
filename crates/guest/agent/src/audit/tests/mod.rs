//! The audit engine with honest and malicious clouds, simulated in milliseconds.

mod cloud;
mod honest;
mod malicious;
