//! Checks of the source tree that neither rustc nor clippy makes.
//!
//! `cargo test -p p4shield-lint` runs them, and `make lint` calls that. Each check returns findings, one line
//! each; an empty list passes.
//!
//! | module | rule |
//! |---|---|
//! | [`arrows`] | a crate depends only on crates of the layers below its own; switch libraries stay light |
//! | [`circles`] | the files of a crate import each other in one direction |
//! | [`documents`] | links and paths in documents lead somewhere; the threat model's tests exist |
//! | [`style`] | files, lines and test names are short; placeholders for actors are absent |
//! | [`unsafe_code`] | only the crates that ARCHITECTURE.md lists contain `unsafe` |

#![forbid(unsafe_code)]

pub mod arrows;
pub mod circles;
pub mod documents;
pub mod style;
pub mod tree;
pub mod unsafe_code;
