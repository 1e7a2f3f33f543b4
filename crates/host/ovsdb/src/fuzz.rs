//! The entry point for the fuzzer and the seeded campaign.

use crate::message::{self, Message};
use crate::stream::Splitter;
use crate::tables::Tables;

/// Processes any bytes as the output of the database's server, in pieces whose size the first byte
/// determines.
pub fn server_output(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let (mut splitter, mut tables) = (Splitter::default(), Tables::default());
    for piece in bytes.chunks(usize::from(first).max(1)) {
        splitter.feed(piece);
        loop {
            match splitter.next().map(|m| m.map(message::parse)) {
                Ok(Some(Ok(Message::Contents(updates) | Message::Update(updates)))) => {
                    if tables.apply(*updates).is_err() {
                        return;
                    }
                    let switch = tables.switch();
                    assert!(switch.interfaces.iter().all(|i| switch.interface(&i.name).is_some()));
                }
                Ok(Some(Ok(Message::Echo { params, id }))) => drop(message::echo_answer(params, id)),
                Ok(Some(Ok(Message::Refused(_) | Message::Other))) => {}
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's typical output.
    const TRANSCRIPT: &str = r#"{"id":1,"error":null,
"result":{"Open_vSwitch":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f11":{"new":{"other_config":["map",
[["dpdk-init","true"],["hw-offload","true"]]]}}},
"Bridge":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f12":{"new":{"name":"br0","datapath_type":"netdev",
"ports":["uuid","4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f13"]}}},
"Port":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f13":{"new":{"name":"p","interfaces":["set",[["uuid",
"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f14"]]]}}},
"Interface":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f14":{"new":{"name":"p","type":"dpdk","ofport":1,
"ifindex":["set",[]],"mac_in_use":"02:00:00:00:00:01","options":["map",[["dpdk-devargs","net_null0"]]],
"external_ids":["map",[["iface-id","\u0041\\\"x"]]]}}}}}
{"id":null,"method":"update",
"params":["p4shield",{"Interface":{"4b1c3a62-93c1-4a4e-a5ac-7a5d8f0a4f14":{"old":{"ofport":1}}}}]}
{"id":"echo","method":"echo","params":[]}
"#;

    /// A deterministic random number generator (xorshift64*).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
        }
    }

    fn mutate(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
        let at = numbers.below(bytes.len());
        match numbers.below(5) {
            0 => bytes[at] = numbers.below(256) as u8,
            1 => bytes.truncate(at.max(2)),
            2 => bytes[at] ^= 1 << numbers.below(8),
            3 => {
                let piece = bytes[at..(at + numbers.below(60)).min(bytes.len())].to_vec();
                let to = numbers.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let signs = br#"[]{}",:\0-"#;
                bytes[at] = signs[numbers.below(signs.len())];
            }
        }
    }

    #[test]
    fn no_output_of_a_server_causes_a_panic() {
        server_output(&[&[200], TRANSCRIPT.as_bytes()].concat());
        for seed in 1..=20_000 {
            let mut numbers = Numbers(seed);
            let mut bytes = [&[numbers.below(256) as u8], TRANSCRIPT.as_bytes()].concat();
            for _ in 0..=numbers.below(4) {
                mutate(&mut bytes, &mut numbers);
            }
            server_output(&bytes);
        }
    }

    #[test]
    fn endless_brackets_do_not_exhaust_the_stack() {
        for opening in ["[", "{\"a\":"] {
            let text = format!("\u{1}{{\"method\":\"update\",\"params\":{}", opening.repeat(100_000));
            server_output(text.as_bytes());
            let closed = format!("{text}{}}}", "]".repeat(100_000));
            server_output(closed.as_bytes());
        }
    }
}
