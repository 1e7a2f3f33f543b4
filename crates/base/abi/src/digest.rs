//! Digests: messages of a program to its control plane.
//!
//! A program that sends some has a map [`DIGEST_MAP`]: an array of [`MAX_DIGESTS`] messages behind one
//! element that begins with their number so far (`u64`). Message `n`, from 0, is the element of index
//! `1 + n % MAX_DIGESTS`: `n + 1` (`u64`), the index of its description in the schema (`u64`), and the values
//! of its fields, each in as many words of eight bytes as its width needs, the lowest first. Numbers are
//! little-endian. Who reads too late finds newer messages there.

/// Symbol of the map with the messages.
pub const DIGEST_MAP: &str = "p4shield_digests";
/// Number of messages that the map has room for: a power of two.
pub const MAX_DIGESTS: u32 = 1024;
/// Bytes of a message before its values.
pub const DIGEST_HEAD: u32 = 16;
/// Most words of a message's values.
pub const MAX_DIGEST_WORDS: u32 = 64;
