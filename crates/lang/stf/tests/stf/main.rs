//! Scripts of the Simple Test Framework.

mod compartment;
mod fuzz;
mod programs;
