//! Transports: what delivers messages with the resources that they name.

use crate::resource::{Delivered, Resources};
use crate::socket::{Received, Socket, SocketError};
use rustix::process::Pid;
use std::fmt::Debug;
use std::time::Duration;

/// One end of a connection between a daemon and a P4 VM.
pub trait Transport: Debug + Send {
    /// Sends a message with its resources. Never waits: a peer that does not read is an error.
    ///
    /// # Errors
    /// The peer is gone or does not read, or the message is too large.
    fn send(&self, message: &[u8], resources: &Resources<'_>) -> Result<(), SocketError>;

    /// Waits until a message or the end can be read. `None` waits for ever.
    ///
    /// # Errors
    /// [`SocketError::Timeout`].
    fn wait(&self, timeout: Option<Duration>) -> Result<(), SocketError>;

    /// Receives a message with its resources, waiting for it.
    ///
    /// # Errors
    /// The peer is gone, or the message breaks a limit (it is discarded then, and its resources closed).
    fn receive(&mut self) -> Result<Incoming, SocketError>;
}

/// A message that was received.
#[derive(Debug)]
pub struct Incoming {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub resources: Delivered,
    /// The process that sent it, if the transport knows.
    pub sender: Option<Pid>,
}

/// Delivers a descriptor for each resource.
impl Transport for Socket {
    fn send(&self, message: &[u8], resources: &Resources<'_>) -> Result<(), SocketError> {
        resources.with_descriptors(|descriptors| Self::send(self, message, descriptors))
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<(), SocketError> {
        Self::wait(self, timeout)
    }

    fn receive(&mut self) -> Result<Incoming, SocketError> {
        let Received { bytes, descriptors, sender } = Self::receive(self)?;
        Ok(Incoming { bytes, resources: descriptors.into(), sender })
    }
}
