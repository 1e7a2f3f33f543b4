//! The P4 VM's end: the next request that is valid.

use crate::envelope::{Envelope, decode, encode};
use crate::message::{Reply, Request};
use crate::resource::{Delivered, Resources};
use crate::socket::SocketError;
use crate::transport::Transport;

/// Returns the next valid request with the resources that it names. Answers invalid requests with an error.
///
/// # Errors
/// The peer is gone or does not read.
pub fn receive_request(
    transport: &mut (impl Transport + ?Sized),
) -> Result<(Envelope<Request>, Delivered), SocketError> {
    loop {
        let (id, why) = match transport.receive() {
            Err(e @ SocketError::Cut) => (0, e.to_string()),
            Err(e) => return Err(e),
            Ok(message) => match decode::<Request>(&message.bytes) {
                Ok(envelope) => {
                    let (named, came) = (envelope.body.resources().len(), message.resources.len());
                    if named == came {
                        return Ok((envelope, message.resources));
                    }
                    (envelope.id, format!("the request names {named} resources, but {came} came with it"))
                }
                Err(e) => (0, e.to_string()),
            },
        };
        transport.send(&encode(&Envelope { id, body: Reply::Failed(why) })?, &Resources::none())?;
    }
}
