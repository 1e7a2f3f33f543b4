//! The encoding of messages: an envelope with a number, in postcard's encoding.

use crate::socket::{MAX_MESSAGE, SocketError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A message with the number that its answer repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// The sender's number for the request.
    pub id: u32,
    /// The message.
    pub body: T,
}

/// Reason why a message is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not postcard, or not of this type.
    #[error("a control message of {len} bytes is not in the protocol's encoding")]
    Encoding {
        /// Bytes of the message.
        len: usize,
        /// Where decoding stopped.
        #[source]
        source: postcard::Error,
    },
    /// Bytes are left over.
    #[error("a control message ends {0} bytes before the packet that carries it")]
    Trailing(usize),
}

/// Encodes a message.
///
/// # Errors
/// The message is longer than [`MAX_MESSAGE`].
pub fn encode<T: Serialize>(envelope: &Envelope<T>) -> Result<Vec<u8>, SocketError> {
    let bytes = postcard::to_stdvec(envelope).map_err(|e| SocketError::Encode { source: e })?;
    if bytes.len() > MAX_MESSAGE {
        return Err(SocketError::TooLong { len: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes a message. Memory use is bounded by a small multiple of the message's size. Entry point
/// of fuzzing, with [`Request`](crate::Request) and [`Reply`](crate::Reply).
///
/// # Errors
/// The bytes are not exactly one message of this type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Envelope<T>, DecodeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((envelope, [])) => Ok(envelope),
        Ok((_, rest)) => Err(DecodeError::Trailing(rest.len())),
        Err(source) => Err(DecodeError::Encoding { len: bytes.len(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{BundleLoaded, BundleRequest};
    use crate::message::{Hello, PROTOCOL_VERSION, Reply, Request, Status, VmKeys, VmStatus};
    use crate::program::{MapDescription, MapPart, MapQuery, ProgramDescription, ProgramSlot};
    use crate::resource::ResourceId;
    use crate::sandbox::SandboxReport;
    use p4shield_abi::Direction;
    use p4shield_abi::channel::Geometry;

    fn samples() -> Vec<Request> {
        let slot = ProgramSlot::new(3, Direction::Egress);
        vec![
            Request::Hello(Hello {
                version: PROTOCOL_VERSION,
                tenant: "red".into(),
                door: Some(ResourceId(0)),
                no_program: 0,
                age_limit_ms: 1000,
                log_interval_ms: 100,
                budget: 1 << 20,
                min_epoch: 1 << 60,
            }),
            Request::SetVm {
                vm: 3,
                name: "web".into(),
                info: Some(ResourceId(0)),
                log: None,
                handshake: None,
                keys: Some(VmKeys { current: ResourceId(1), previous: Some((ResourceId(2), 600_000)) }),
            },
            Request::SetKeys { vm: 3, key: ResourceId(0), window_ms: 1 },
            Request::LoadProgram {
                slot,
                name: "guard".into(),
                objects: ResourceId(0),
                lengths: vec![100, 200],
            },
            Request::StageProgram { slot, name: "guard".into(), objects: ResourceId(0), lengths: vec![300] },
            Request::RemoveVm { vm: 3 },
            Request::RaiseEpoch { min_epoch: 1 << 61 },
            Request::AttachChannel {
                channel: 1,
                geometry: Geometry::default().into(),
                memory: ResourceId(0),
                doorbell: ResourceId(1),
                packets: Some((ResourceId(2), 1 << 24)),
            },
            Request::DescribeProgram { slot, maps: 3, schema: 4096 },
            Request::ReadMap(MapQuery { slot, program: [9; 32], map: 1, from: 7, rows: 100, zeros: true }),
            Request::Status,
            Request::PinBundleKey { key: [7; 32] },
            Request::StageBundle(BundleRequest {
                vm: 3,
                name: "web".into(),
                bytes: ResourceId(0),
                len: 1 << 20,
                floor: 1 << 40,
            }),
        ]
    }

    #[test]
    fn messages_read_back() {
        for body in samples() {
            let envelope = Envelope { id: 7, body };
            assert_eq!(decode::<Request>(&encode(&envelope).unwrap()).unwrap(), envelope);
        }
    }

    #[test]
    fn requests_list_the_resources_that_they_name() {
        for body in samples() {
            let ids: Vec<_> = body.resources().into_iter().map(|(id, _)| usize::from(id.0)).collect();
            assert_eq!(ids, (0..ids.len()).collect::<Vec<_>>(), "{body:?}");
        }
    }

    #[test]
    fn cut_and_extended_messages_are_refused() {
        for body in samples() {
            let mut bytes = encode(&Envelope { id: 7, body }).unwrap();
            for n in 0..bytes.len() {
                assert!(decode::<Request>(&bytes[..n]).is_err(), "the first {n} bytes");
            }
            bytes.push(0);
            assert!(matches!(decode::<Request>(&bytes), Err(DecodeError::Trailing(1))));
        }
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        // Reply::Refused with a string of 2^60 bytes.
        let mut bytes = vec![1, 4];
        bytes.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]);
        assert!(decode::<Reply>(&bytes).is_err());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut seeds: Vec<_> =
            samples().into_iter().map(|body| encode(&Envelope { id: 7, body }).unwrap()).collect();
        let status = Status { vms: vec![VmStatus::default(); 2], ..Status::default() };
        let hello = Reply::Hello { version: PROTOCOL_VERSION, sandbox: SandboxReport::default() };
        let map = MapDescription { name: "ports".into(), definition: [1, 4, 8, 16, 0] };
        let description = ProgramDescription {
            map_count: 2,
            maps: vec![map; 2],
            schema_len: Some(9),
            schema: vec![1; 9],
            ..ProgramDescription::default()
        };
        let part = MapPart { entries: vec![(vec![1; 4], vec![2; 8])], more: 3, next: Some(300) };
        for body in [
            hello,
            Reply::Status(Box::new(status)),
            Reply::Refused("no".to_owned()),
            Reply::Description(Box::new(description)),
            Reply::MapPart(part),
            Reply::BundleLoaded(BundleLoaded { version: 1 << 40, programs: [Some([9; 32]), None] }),
        ] {
            seeds.push(encode(&Envelope { id: 7, body }).unwrap());
        }
        p4shield_testbed::campaign(&seeds, |bytes| {
            let _ = decode::<Request>(bytes);
            let _ = decode::<Reply>(bytes);
        });
    }
}
