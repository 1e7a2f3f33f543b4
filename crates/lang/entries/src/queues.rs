//! Queues as in the reference switch's command line.

use crate::Problem;
use p4shield_tables::write::Write;

const RATE: &str = "set_queue_rate PACKETS_PER_SECOND [PORT]";
const DEPTH: &str = "set_queue_depth PACKETS [PORT]";

/// Returns the write of a command that sets queues; `None` for any other command.
pub(crate) fn write(command: &str, arguments: &[&str]) -> Option<Result<Write, Problem>> {
    let usage = match command {
        "set_queue_rate" => RATE,
        "set_queue_depth" => DEPTH,
        _ => return None,
    };
    if arguments.len() > 2 {
        let command = command.to_owned();
        let why = "a port has one rate and one depth for all priorities; leave the priority out";
        return Some(Err(Problem::Unsupported { command, why }));
    }
    Some(read(command, arguments).ok_or(Problem::Usage(usage)))
}

fn read(command: &str, arguments: &[&str]) -> Option<Write> {
    let (amount, port) = arguments.split_first()?;
    let port = port.first().map(|p| p.parse().ok()).map_or(Some(None), |p| p.map(Some))?;
    let (packets, depth) = match command {
        "set_queue_rate" => (Some(amount.parse().ok()?), None),
        _ => (None, Some(amount.parse().ok()?)),
    };
    Some(Write::SetQueue { port, packets, bits: None, depth })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_set_rates_and_depths_of_queues() {
        let queue = |port, packets, depth| Some(Ok(Write::SetQueue { port, packets, bits: None, depth }));
        assert_eq!(write("set_queue_rate", &["100"]), queue(None, Some(100), None));
        assert_eq!(write("set_queue_rate", &["100", "3"]), queue(Some(3), Some(100), None));
        assert_eq!(write("set_queue_depth", &["32", "3"]), queue(Some(3), None, Some(32)));
        assert_eq!(write("set_crc16_parameters", &["1"]), None);
        for arguments in [&[][..], &["many"], &["1", "port"], &["-1"]] {
            assert_eq!(write("set_queue_rate", arguments), Some(Err(Problem::Usage(RATE))), "{arguments:?}");
        }
        assert!(matches!(write("set_queue_depth", &["1", "2", "3"]), Some(Err(Problem::Unsupported { .. }))));
    }
}
