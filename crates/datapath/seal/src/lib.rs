//! Keys, sealed snapshots and authenticated, chained execution logs.
//!
//! A tenant's user VM and P4 VM talk through memory that the cloud owns. This crate is what lets each believe what
//! it reads there: the cloud can stop the conversation, and nothing else.
//!
//! * [`TenantKey`]: the 32 bytes that both ends hold; from a file that only its owner may read, until the attested
//!   exchange exists.
//! * [`Epoch`]: the number of one start of a writer. It only ever grows, across crashes too, and each has its own
//!   key, so a (key, nonce) pair is never used twice.
//! * [`Floor`]: what keeps the epochs of a writer without storage from going back with its clock.
//! * [`InfoSealer`] and [`InfoOpener`]: snapshots of in-VM information, with an age limit that old data cannot pass.
//! * [`LogSealer`] and [`LogOpener`]: execution log records, each naming the one before it.
//! * [`PacketDigest`]: the keyed digest of a packet that both ends sum up to compare what they saw; [`Digests`]: of
//!   several at once.
//!
//! # Construction
//!
//! AES-256-GCM. The key of an epoch is `HKDF-SHA256(tenant key)` expanded over the purpose, the tenant, the VM and
//! the epoch, every string preceded by its length. The 96-bit nonce is four zero bytes and the little-endian
//! counter of the publication. The associated data repeats purpose, tenant, VM and epoch and adds layout version
//! and counter. A record thus opens only as what it was sealed for; swapping tenants, VMs, pages or positions
//! yields a forgery.
//!
//! Nothing here reads shared memory: callers copy a publication to private memory first.

#![deny(unsafe_code)]

mod clock;
mod derive;
mod digest;
mod digests;
mod epoch;
mod floor;
mod info;
mod key;
mod log;
mod seal;

pub use clock::Now;
pub use derive::Identity;
pub use digest::PacketDigest;
pub use digests::{Digests, LANES};
pub use epoch::{Epoch, EpochError};
pub use floor::Floor;
pub use info::{AgeLimit, InfoOpener, InfoRefusal, InfoSealer, SEALED_INFO_SIZE};
pub use key::{KEY_SIZE, KeyError, TenantKey};
pub use log::{Continuity, LogOpener, LogRefusal, LogSealer, LogTotals, OpenedRecord, SEALED_LOG_SIZE};
pub use seal::SealedRecord;
