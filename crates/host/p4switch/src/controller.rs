//! Packets to and from the controller, for `p4shield switch packet`.

use crate::api::{PacketIn, PacketsIn};
use crate::desk::Desk;
use crate::order::Work;
use p4shield_abi::schema::{MessageKind, MessageSchema};
use p4shield_io::controller::{KEPT, PENDING, Sent};
use p4shield_tables::Described;
use p4shield_tables::entry::Named;
use p4shield_tables::message::{Values, decode_header, encode_header, messages};

/// The reason why there are no packets to or from the controller, and the remedy.
pub(crate) const NO_CONTROLLER: &str = "the switch has no CPU port; stop it, and give it --cpu-port NUMBER";

impl Desk {
    /// Returns the packets to the controller from this number on.
    pub(crate) fn packets_in(&self, from: Option<u64>) -> Result<PacketsIn, String> {
        self.check_controller()?;
        let program = self.program();
        let header = header(&program.described, MessageKind::PacketIn);
        let mut sent = self.copy_sent(from.unwrap_or(u64::MAX))?;
        let from = from.map_or(sent.total, |from| from.min(sent.total));
        let mut packets: Vec<_> = sent.packets().map(|bytes| packet_in(header, bytes)).collect();
        // What comes meanwhile is for the next answer.
        let total = sent.total;
        while sent.next < total && packets.len() < KEPT {
            sent = self.copy_sent(sent.next)?;
            packets.extend(sent.packets().map(|bytes| packet_in(header, bytes)));
        }
        let missed = sent.next - from - packets.len() as u64;
        Ok(PacketsIn { packets, next: sent.next, missed })
    }

    /// Sends a packet of the controller into the switch.
    pub(crate) fn packet_out(&self, fields: &[Named], payload: &str) -> Result<(), String> {
        self.check_controller()?;
        let payload = hex::decode(payload).map_err(|e| format!("the packet is not hexadecimal: {e}"))?;
        let program = self.program();
        let head = match header(&program.described, MessageKind::PacketOut) {
            Some(header) => encode_header(header, fields).map_err(|e| e.to_string())?,
            None if fields.is_empty() => Vec::new(),
            None => return Err("the program has no @controller_header(\"packet_out\")".to_owned()),
        };
        let done = self.threads.execute(Work::Put([head, payload].concat(), false))?;
        match done.work {
            Work::Put(_, true) => Ok(()),
            _ => Err(format!("the packet is too long, or {PENDING} packets of the controller wait already")),
        }
    }

    fn check_controller(&self) -> Result<(), String> {
        if self.ports.have_controller() { Ok(()) } else { Err(NO_CONTROLLER.to_owned()) }
    }

    fn copy_sent(&self, from: u64) -> Result<Sent, String> {
        match self.threads.execute(Work::Sent(Sent::new(from)))?.work {
            Work::Sent(sent) => Ok(sent),
            _ => Err("no packets".to_owned()),
        }
    }
}

fn header(described: &Described, kind: MessageKind) -> Option<&MessageSchema> {
    messages(described, kind).next()
}

/// Returns a packet with the fields of its header; all of it as payload if it has none.
fn packet_in(header: Option<&MessageSchema>, bytes: &[u8]) -> PacketIn {
    let decoded = header.and_then(|header| decode_header(header, bytes).ok());
    let (values, payload) = decoded.unwrap_or((Values::new(), bytes));
    PacketIn { values, payload: hex::encode(payload) }
}
