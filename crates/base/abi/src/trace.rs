//! The trace of a program: the events of a run, which a program that was compiled for tracing records.
//!
//! Such a program has a map [`TRACE_MAP`]: an array of [`MAX_EVENTS`] events of [`EVENT_WORDS`] little-endian
//! words of eight bytes each. A run records its events from index 0 on, in their order; those for which there
//! is no room are lost. The first word of an event is the number of its trace point, from 1; the others are
//! the values of the point. The engine that runs the program sets the events to 0 between two runs.

/// Symbol of the map with the events.
pub const TRACE_MAP: &str = "p4shield_trace";
/// Number of events that the map has room for.
pub const MAX_EVENTS: u32 = 512;
/// Words of an event.
pub const EVENT_WORDS: usize = 8;
/// Size of an event in bytes.
pub const EVENT_SIZE: u32 = 8 * EVENT_WORDS as u32;
