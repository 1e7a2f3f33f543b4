//! What the documentation tells operators to type, on real switches.

mod operator;
mod tutorial;
