//! Control messages as frames on a serial line.
//!
//! A descriptor cannot be sent into a virtual machine. Each resource of a message is an [`Attachment`]
//! there: a device that holds the memory, the bytes themselves, or the number of a doorbell. The messages go
//! over a serial line without loss, as frames: a length (32 bits, little-endian) and as many bytes in
//! postcard's encoding. Neither side trusts the other: a frame is bounded before memory is allocated for
//! it.

use p4shield_control::{DecodeError, MAX_BUNDLE, MAX_MESSAGE};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the frames. The host's program and the guest's are different binaries.
pub const CARRIED_VERSION: u32 = 1;
/// The most bytes of a frame to a P4 VM: a message with the objects of a program.
pub const MAX_TO_GUEST: usize = MAX_BUNDLE + MAX_MESSAGE + 1024;
/// The most bytes of a frame from a P4 VM.
pub const MAX_FROM_GUEST: usize = MAX_MESSAGE + 64;

/// What stands for a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// Memory that the host shares: base address register 2 of the ivshmem device in this slot behind
    /// this bridge.
    Region {
        /// The bridge's slot on PCI bus 0.
        bridge: u8,
        /// The device's slot behind the bridge.
        slot: u8,
        /// Bytes of the memory.
        len: u64,
        /// Whether the guest maps it with write combining instead of uncached.
        write_combining: bool,
    },
    /// A file with these bytes: a key or a program.
    Bytes(Vec<u8>),
    /// A doorbell, by the number that stands for it on the line of rings ([`crate::Rings`]).
    Doorbell(u8),
}

/// A request on its way to a P4 VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedRequest {
    /// The message, as the daemon encoded it.
    pub message: Vec<u8>,
    /// What stands for its resources, in the order of their numbers.
    pub attachments: Vec<Attachment>,
    /// The host's clock, nanoseconds since 1970: a virtual machine starts with whole seconds only.
    pub unix_ns: u64,
}

/// What a P4 VM sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuest {
    /// It has started and can receive requests.
    Ready {
        /// [`CARRIED_VERSION`] of the guest.
        version: u32,
    },
    /// A reply, as the P4 VM encoded it.
    Reply(Vec<u8>),
}

/// Reason why a frame is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It is longer than allowed.
    #[error("a frame on the line to the virtual machine has {len} bytes, at most {most} are allowed")]
    TooLong {
        /// Its length.
        len: usize,
        /// The limit.
        most: usize,
    },
    /// Its contents are invalid.
    #[error("a frame on the line to the virtual machine is invalid")]
    Contents(#[from] DecodeError),
    /// It cannot be encoded.
    #[error("a frame on the line to the virtual machine cannot be encoded")]
    Encode(#[source] postcard::Error),
}

/// Encodes a frame of at most `most` bytes after its length.
///
/// # Errors
/// It would be longer.
pub fn encode_frame<T: Serialize>(body: &T, most: usize) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_extend(body, vec![0; size_of::<u32>()]).map_err(FrameError::Encode)?;
    let len = bytes.len() - size_of::<u32>();
    let length = u32::try_from(len).ok().filter(|_| len <= most).ok_or(FrameError::TooLong { len, most })?;
    let mut bytes = bytes;
    bytes[..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Collects the bytes of a line until they are frames.
#[derive(Debug)]
pub struct FrameReader {
    bytes: Vec<u8>,
    most: usize,
}

impl FrameReader {
    /// Returns a reader of frames of at most `most` bytes.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most }
    }

    /// Adds received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next frame, if all of it has arrived. Entry point of fuzzing, with [`CarriedRequest`] and
    /// [`FromGuest`].
    ///
    /// # Errors
    /// It is too long or invalid. The line is then out of step and cannot be used further.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((length, rest)) = self.bytes.split_first_chunk() else { return Ok(None) };
        let len = u32::from_le_bytes(*length) as usize;
        if len > self.most {
            return Err(FrameError::TooLong { len, most: self.most });
        }
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        let body = match postcard::take_from_bytes(frame) {
            Ok((body, [])) => body,
            Ok((_, rest)) => return Err(DecodeError::Trailing(rest.len()).into()),
            Err(source) => return Err(DecodeError::Encoding { len, source }.into()),
        };
        self.bytes.drain(..size_of::<u32>() + len);
        Ok(Some(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::{FromSwitch, MAX_FROM_SWITCH, MAX_TO_SWITCH, ToSwitch};

    fn request() -> CarriedRequest {
        let attachments = vec![
            Attachment::Region { bridge: 16, slot: 31, len: 1 << 20, write_combining: true },
            Attachment::Doorbell(247),
            Attachment::Bytes(vec![7; 32]),
        ];
        CarriedRequest { message: vec![1; 100], attachments, unix_ns: 1 << 60 }
    }

    #[test]
    fn frames_arrive_in_any_pieces() {
        let frame = encode_frame(&request(), MAX_TO_GUEST).unwrap();
        for piece in 1..frame.len() {
            let mut reader = FrameReader::new(MAX_TO_GUEST);
            let mut taken = Vec::new();
            for bytes in frame.repeat(2).chunks(piece) {
                reader.extend(bytes);
                taken.extend(reader.take::<CarriedRequest>().unwrap());
            }
            taken.extend(reader.take::<CarriedRequest>().unwrap());
            assert_eq!(taken, [request(), request()], "pieces of {piece} bytes");
        }
    }

    #[test]
    fn too_long_frames_are_refused_before_their_bytes() {
        let mut reader = FrameReader::new(100);
        reader.extend(&101_u32.to_le_bytes());
        assert!(matches!(reader.take::<FromGuest>(), Err(FrameError::TooLong { len: 101, most: 100 })));
        let long = FromGuest::Reply(vec![0; 200]);
        assert!(matches!(encode_frame(&long, 100), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn frames_with_bytes_left_over_are_refused() {
        let mut frame = encode_frame(&FromGuest::Ready { version: 1 }, 100).unwrap();
        frame.push(0);
        frame[0] += 1;
        let mut reader = FrameReader::new(100);
        reader.extend(&frame);
        let error = reader.take::<FromGuest>().unwrap_err();
        assert!(matches!(error, FrameError::Contents(DecodeError::Trailing(1))), "{error:?}");
    }

    #[test]
    fn damaged_frames_never_panic() {
        let seeds = [
            encode_frame(&request(), MAX_TO_GUEST).unwrap(),
            encode_frame(&FromGuest::Reply(vec![3; 40]), MAX_FROM_GUEST).unwrap(),
            encode_frame(&ToSwitch::Data(7, vec![5; 40]), MAX_TO_SWITCH).unwrap(),
        ];
        p4shield_testbed::campaign(&seeds, |bytes| {
            let mut reader = FrameReader::new(MAX_FROM_GUEST);
            reader.extend(bytes);
            while let Ok(Some(_)) = reader.take::<FromGuest>() {}
            let mut reader = FrameReader::new(MAX_TO_GUEST);
            reader.extend(bytes);
            while let Ok(Some(_)) = reader.take::<CarriedRequest>() {}
            let mut reader = FrameReader::new(MAX_FROM_SWITCH);
            reader.extend(bytes);
            while let Ok(Some(_)) = reader.take::<FromSwitch>() {}
            let mut reader = FrameReader::new(MAX_TO_SWITCH);
            reader.extend(bytes);
            while let Ok(Some(_)) = reader.take::<ToSwitch>() {}
        });
    }
}
