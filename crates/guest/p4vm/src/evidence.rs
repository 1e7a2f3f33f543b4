//! Evidence about this machine, for the runtime, whose sandbox cannot reach the kernel's reports.

use p4shield_attest::{Attester, CONFIGFS, ConfigfsTsm, ReportData};
use p4shield_control::Socket;
use p4shield_runtime::evidence::{GRANTED, REFUSED};
use std::path::Path;

/// Returns what collects evidence, if the kernel offers reports of a TEE.
pub(crate) fn attester() -> Option<ConfigfsTsm> {
    let folder = Path::new(CONFIGFS);
    if !folder.exists() {
        return None;
    }
    let detected = ConfigfsTsm::detect(folder).inspect_err(|error| {
        // The P4 VM goes on without evidence, and an agent that demands it agrees on no key.
        crate::report(&anyhow::Error::msg(error.to_string()));
    });
    detected.ok()
}

/// Answers requests until the runtime ends.
pub(crate) fn serve(attester: &impl Attester, mut socket: Socket) {
    while let Ok(request) = socket.receive() {
        let answer = match collect(attester, &request.bytes) {
            Ok(evidence) => [&[GRANTED], evidence.as_slice()].concat(),
            Err(reason) => [&[REFUSED], reason.as_bytes()].concat(),
        };
        if socket.send(&answer, &[]).is_err() {
            return;
        }
    }
}

fn collect(attester: &impl Attester, request: &[u8]) -> Result<Vec<u8>, String> {
    let data = request.try_into().map_err(|_| "a request has 64 bytes of report data".to_owned())?;
    let evidence =
        attester.evidence(&ReportData::new(data)).map_err(|e| format!("{:#}", anyhow::Error::new(e)))?;
    evidence.encode().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_attest::{SampleAttester, claimed_report_data};

    #[test]
    fn the_runtime_gets_evidence_over_its_report_data() {
        let (ours, theirs) = Socket::pair().unwrap();
        let served = std::thread::spawn(|| serve(&SampleAttester, theirs));
        let mut ours = ours;
        ours.send(&[7; 64], &[]).unwrap();
        let answer = ours.receive().unwrap().bytes;
        assert_eq!(answer[0], GRANTED);
        assert_eq!(claimed_report_data(&answer[1..]).unwrap().as_bytes(), &[7; 64]);
        ours.send(&[7; 63], &[]).unwrap();
        assert_eq!(ours.receive().unwrap().bytes[0], REFUSED);
        drop(ours);
        served.join().unwrap();
    }
}
