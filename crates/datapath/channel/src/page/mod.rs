//! The two ends of an info page or a log page ([`p4shield_abi::page`]), and of a handshake page, which
//! consists of two pages.
//!
//! A page is a ring of slots, each a seqlock, with a counter of publications in front. The one writer
//! never waits for readers. A reader copies a slot between two loads of the slot's sequence number
//! and retries, a bounded number of times, if the writer was active in between.
//!
//! The seqlock keeps half-written slots of an honest writer from being taken for forgeries. The seal
//! protects against a dishonest writer; here, reading never panics, loops or reads out of bounds,
//! whatever the page contains.

mod geometry;
mod handshake;
mod reader;
mod writer;

pub use handshake::HandshakePage;
pub use reader::{PageReader, Publication};
pub use writer::PageWriter;
