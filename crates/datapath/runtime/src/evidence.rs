//! Evidence about this P4 VM, from the machine's first process: the sandbox has no file system, where the
//! kernel offers reports of the hardware.
//!
//! A request is the 64 bytes of report data. An answer is [`GRANTED`] and the evidence, or [`REFUSED`] and
//! the reason.

use p4shield_control::{Socket, SocketError};
use p4shield_handshake::{Prover, ProverError};
use p4shield_text::printable;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// First byte of an answer with evidence.
pub const GRANTED: u8 = 0;
/// First byte of an answer with a reason.
pub const REFUSED: u8 = 1;
/// Longest time for the hardware to sign a report: a quote of TDX passes a service on the host.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connection to what collects evidence.
pub(crate) struct EvidenceSource(Mutex<Socket>);

impl EvidenceSource {
    pub(crate) const fn new(socket: Socket) -> Self {
        Self(Mutex::new(socket))
    }
}

impl Prover for EvidenceSource {
    fn evidence(&self, report_data: &[u8; 64]) -> Result<Vec<u8>, ProverError> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ask(&mut socket, report_data).map_err(ProverError)
    }
}

fn ask(socket: &mut Socket, report_data: &[u8; 64]) -> Result<Vec<u8>, String> {
    let failed = |e: SocketError| format!("the machine's first process collects no evidence: {e}");
    // An answer that came too late belongs to another request.
    while socket.wait(Some(Duration::ZERO)).is_ok() {
        socket.receive().map_err(failed)?;
    }
    socket.send(report_data, &[]).map_err(failed)?;
    socket.wait(Some(PATIENCE)).map_err(failed)?;
    let answer = socket.receive().map_err(failed)?;
    match answer.bytes.split_first() {
        Some((&GRANTED, evidence)) => Ok(evidence.to_vec()),
        Some((&REFUSED, reason)) => Err(printable(&String::from_utf8_lossy(reason))),
        _ => Err("the machine's first process sent an invalid answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_and_reasons_arrive_and_late_answers_do_not() {
        let (ours, mut theirs) = Socket::pair().unwrap();
        let source = EvidenceSource::new(ours);
        theirs.send(&[GRANTED, 9, 9], &[]).unwrap();
        let answers = std::thread::spawn(move || {
            for answer in [[&[GRANTED][..], b"report"].concat(), [&[REFUSED][..], b"no device"].concat()] {
                assert_eq!(theirs.receive().unwrap().bytes, [7; 64]);
                theirs.send(&answer, &[]).unwrap();
            }
        });
        assert_eq!(source.evidence(&[7; 64]).unwrap(), b"report");
        assert_eq!(source.evidence(&[7; 64]).unwrap_err().0, "no device");
        answers.join().unwrap();
        assert!(source.evidence(&[7; 64]).unwrap_err().0.contains("first process"));
    }
}
