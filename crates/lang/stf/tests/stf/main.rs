//! Scripts of the Simple Test Framework.

mod fuzz;
mod programs;
