//! The audit engine with honest and malicious clouds, simulated in milliseconds.

mod adversary;
mod cloud;
mod game;
mod honest;
mod malicious;
mod moves;
mod play;
mod rotation;
mod start;
mod stated;
mod suspicions;
