//! Resources: the memory, files and sockets that a message names and its transport delivers.
//!
//! A message names a resource by its [`ResourceId`], so that it is the same message over every transport. A
//! UNIX socket delivers a descriptor for each. For a P4 VM in a virtual machine, memory becomes a device,
//! bytes are copied, and a doorbell is a number: [`ResourceKind`] says which of these a resource may become.

use crate::socket::{MAX_DESCRIPTORS, SocketError};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Names a resource of the message that it comes with: its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceId(pub u8);

/// What a transport must know of a resource. [`crate::Request::resources`] lists those of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Memory of so many bytes that host and P4 VM share.
    Region(u64),
    /// At most so many bytes, which the P4 VM reads once.
    Bytes(usize),
    /// The P4 VM's end of a doorbell.
    Doorbell,
    /// The packet memory of a switch on this machine.
    PacketMemory,
    /// A socket or pipe of this machine, which stays on it.
    Local,
}

/// The resources of a message that is about to be sent.
#[derive(Debug, Default)]
pub struct Resources<'a>(Vec<Resource<'a>>);

#[derive(Debug)]
enum Resource<'a> {
    File(BorrowedFd<'a>),
    Bytes(&'a [u8]),
}

impl<'a> Resources<'a> {
    /// Returns an empty list.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds shared memory, a doorbell, a socket or a pipe. Returns its name.
    pub fn add(&mut self, file: &'a impl AsFd) -> ResourceId {
        self.push(Resource::File(file.as_fd()))
    }

    /// Adds bytes, which the receiver finds in a file of their own: a key or a program. Returns their name.
    pub fn add_bytes(&mut self, bytes: &'a [u8]) -> ResourceId {
        self.push(Resource::Bytes(bytes))
    }

    /// A message names fewer resources than 256; a transport refuses more than it can carry.
    fn push(&mut self, resource: Resource<'a>) -> ResourceId {
        let id = ResourceId(u8::try_from(self.0.len()).unwrap_or(u8::MAX));
        self.0.push(resource);
        id
    }

    /// Has `f` send a descriptor for each resource.
    ///
    /// # Errors
    /// There are too many, bytes cannot be put into a file, or `f` fails.
    pub fn with_descriptors<R>(
        &self,
        f: impl FnOnce(&[BorrowedFd<'_>]) -> Result<R, SocketError>,
    ) -> Result<R, SocketError> {
        if self.0.len() > MAX_DESCRIPTORS {
            return Err(SocketError::Cut);
        }
        let copy = |resource: &Resource<'_>| match resource {
            Resource::File(_) => Ok(None),
            Resource::Bytes(bytes) => memory(bytes).map(Some),
        };
        let copies = self.0.iter().map(copy).collect::<Result<Vec<_>, _>>();
        let copies = copies.map_err(|source| SocketError::Kernel { what: "create a file for", source })?;
        let mut descriptors = Vec::with_capacity(copies.len());
        for (resource, copy) in self.0.iter().zip(&copies) {
            match resource {
                Resource::File(file) => descriptors.push(*file),
                Resource::Bytes(_) => descriptors.extend(copy.as_ref().map(AsFd::as_fd)),
            }
        }
        f(&descriptors)
    }
}

/// The resources of a message that was received.
#[derive(Debug, Default)]
pub struct Delivered(Vec<Option<OwnedFd>>);

/// A message names a resource that did not come with it, or names it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource {} of the request is missing", .0.0)]
pub struct MissingResource(pub ResourceId);

impl Delivered {
    /// Returns the number of resources, taken ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether none came.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a resource out. The others are closed with this list.
    ///
    /// # Errors
    /// There is none of this name, or it was taken.
    pub fn take(&mut self, id: ResourceId) -> Result<OwnedFd, MissingResource> {
        self.0.get_mut(usize::from(id.0)).and_then(Option::take).ok_or(MissingResource(id))
    }
}

impl From<Vec<OwnedFd>> for Delivered {
    fn from(descriptors: Vec<OwnedFd>) -> Self {
        Self(descriptors.into_iter().map(Some).collect())
    }
}

/// Returns a memory file with these bytes.
fn memory(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let file = memfd_create("p4shield", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incoming, Socket, Transport};
    use std::io::Read;

    #[test]
    fn a_socket_delivers_files_and_bytes_by_name() {
        let (ours, mut theirs) = Socket::pair().unwrap();
        let page = memory(b"page").unwrap();
        let key = [7; 32];
        let mut resources = Resources::none();
        let [page, key_id] = [resources.add(&page), resources.add_bytes(&key)];
        Transport::send(&ours, b"message", &resources).unwrap();
        let Incoming { bytes, resources: mut came, .. } = Transport::receive(&mut theirs).unwrap();
        assert_eq!((bytes.as_slice(), came.len()), (&b"message"[..], 2));
        let mut content = [0; 33];
        assert_eq!(rustix::io::pread(came.take(key_id).unwrap(), &mut content, 0), Ok(32));
        assert_eq!(content[..32], key);
        let mut text = String::new();
        let mut file = std::fs::File::from(came.take(page).unwrap());
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "page");
    }

    #[test]
    fn a_resource_is_taken_once_and_by_its_own_name() {
        let mut came = Delivered::from(vec![memory(b"one").unwrap()]);
        assert!(came.take(ResourceId(1)).is_err());
        assert!(came.take(ResourceId(0)).is_ok());
        assert_eq!(came.take(ResourceId(0)).unwrap_err(), MissingResource(ResourceId(0)));
    }

    #[test]
    fn more_resources_than_a_socket_carries_are_refused() {
        let (ours, _theirs) = Socket::pair().unwrap();
        let mut resources = Resources::none();
        for _ in 0..=MAX_DESCRIPTORS {
            resources.add_bytes(b"x");
        }
        assert!(matches!(Transport::send(&ours, b"message", &resources), Err(SocketError::Cut)));
    }
}
