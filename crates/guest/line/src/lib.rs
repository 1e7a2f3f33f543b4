//! The serial lines between the host and a P4 VM, or a P4 switch ([`switch`]), in a virtual machine.
//!
//! One line carries control messages as frames ([`CarriedRequest`], [`FromGuest`]), the other one the
//! rings of doorbells ([`Rings`]). Serial lines need no module of the guest's kernel, so that the guest's
//! initial file system holds one program only.
#![forbid(unsafe_code)]

mod frame;
mod rings;
pub mod switch;

pub use frame::{
    Attachment, CARRIED_VERSION, CarriedRequest, FrameError, FrameReader, FromGuest, MAX_FROM_GUEST,
    MAX_TO_GUEST, encode_frame,
};
pub use rings::Rings;
