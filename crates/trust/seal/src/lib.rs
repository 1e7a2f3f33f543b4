//! Keys, sealed snapshots and authenticated, chained execution logs.
//!
//! A tenant's user VM and P4 VM communicate through memory that the cloud owns. With this crate each
//! can trust what it reads there: the cloud can stop the communication, but not forge it.
//!
//! * [`TenantKey`]: the 32 bytes that both ends hold; from a file that only its owner may read, or from a
//!   session of `p4shield-handshake` ([`Epoch::from_session`]).
//! * [`KeyRing`]: the current key of a VM and, for a while after a rotation, the previous one; [`KeyFile`]:
//!   a key file that may be replaced while its reader runs.
//! * [`Epoch`]: the number of one start of a writer. Epochs only grow, also across crashes, and each
//!   has its own key, so a (key, nonce) pair is never used twice.
//! * [`EpochSequence`]: the epochs of a process without storage, which never repeat in it.
//! * [`EpochFloor`]: a lower limit that keeps the epochs of a writer without storage growing when its
//!   clock is set back.
//! * [`InfoSealer`] and [`InfoOpener`]: snapshots of in-VM information, with an age limit.
//! * [`LogSealer`] and [`LogOpener`]: execution log records, each of which names the previous one.
//! * [`PacketDigest`]: the keyed digest of a packet, which both ends sum to compare their packets;
//!   [`DigestBatch`] computes several at once.
//!
//! # Construction
//!
//! AES-256-GCM. The key of a writer's start is `HKDF-SHA256(tenant key)` expanded over the purpose, the
//! tenant, the VM, the epoch and a random salt of 64 bits, every string preceded by its length; the salt
//! precedes the ciphertext. The 96-bit nonce is four zero
//! bytes and the little-endian counter of the publication. The associated data repeats purpose,
//! tenant, VM and epoch and adds layout version and counter. A record thus opens only with the
//! tenant, VM, page and position that it was sealed for; with any other it is a forgery.
//!
//! This crate never reads shared memory: callers copy a publication to private memory first.

#![deny(unsafe_code)]

mod clock;
mod derive;
mod digest;
mod digest_batch;
mod epoch;
mod floor;
mod info;
mod key;
mod key_file;
mod log;
mod previous_key;
mod record_cipher;
mod rotation;

pub use clock::Now;
pub use derive::Identity;
pub use digest::PacketDigest;
pub use digest_batch::{DigestBatch, LANES};
pub use epoch::{Epoch, EpochError, EpochSequence, MAX_FLOOR_LEAD_NS};
pub use floor::EpochFloor;
pub use info::{AgeLimit, InfoOpener, InfoRefusal, InfoSealer, SEALED_INFO_SIZE};
pub use key::{KEY_SIZE, KeyError, KeyId, TenantKey};
pub use key_file::KeyFile;
pub use log::{Continuity, LogOpener, LogRefusal, LogSealer, LogTotals, OpenedRecord, SEALED_LOG_SIZE};
pub use previous_key::PreviousKey;
pub use record_cipher::SealedRecord;
pub use rotation::{InfoKey, KeyRing, LogKey};
