//! `p4shield switch status`.

use p4shield_console::Exit;
use p4shield_p4switch::{Placement, api};

use super::{Socket, port};
use crate::commands::watch::Watch;

/// Show the ports of a switch with their packets, dropped packets by reason, and problems
///
/// Rates are those of about the last second.
///
/// Reasons: program (the program dropped it), stopped (its budget or a limit ended the run), no_port and
/// no_group (it chose a port or multicast group that does not exist), port_down (the port's interface is
/// gone, is down or has no carrier), no_session (it cloned the packet to a session that does not exist),
/// runs (the packet caused more copies or runs of the program than a packet may), queue (the queue of its
/// port was full), no_room (the port's ring was full, or the packet too long for it), too_long (longer than
/// the switch processes), unanswered (it waited in vain for a function in the compartment), calls_full (too
/// many packets waited for it).
///
/// Examples:
///
///   p4shield switch status
///   p4shield switch status --watch
///   p4shield switch status --json | jq .dropped
///
/// Exit code 1 if there is a problem.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Status {
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    socket: Socket,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let status = super::watch(&self.watch, || Ok(api::status(&self.socket.socket)?), text)?;
        Ok(if status.problems.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn text(status: &api::Status) -> String {
    let digest = status.digest.get(..12).unwrap_or(&status.digest);
    let turns = status.shared_for.iter().map(|why| format!(" in turn ({why})")).collect::<String>();
    let threads =
        if status.threads > 1 { format!(", {} threads{turns}", status.threads) } else { String::new() };
    let placement = match status.placement {
        Placement::Inline => String::new(),
        placement => format!(", placement {}", placement.name()),
    };
    let (program, seconds) = (&status.program, status.seconds);
    let mut out = format!("{program}: program {digest}, for {seconds} s{threads}{placement}\n\n");
    out.push_str(&port::text(&status.ports));
    let api::Traffic { received, sent, .. } = status.deleted;
    if received + sent > 0 {
        out.push_str(&format!("\ndeleted ports: {received} received, {sent} sent\n"));
    }
    let dropped = status.dropped.iter().filter(|d| d.packets > 0);
    let dropped: Vec<_> = dropped.map(|d| format!("{} {}", d.packets, d.reason)).collect();
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    out.push_str(&format!("\ndropped: {dropped}\n"));
    let counts = [
        ("replicated", status.replicated),
        ("copies", status.copies),
        ("resubmitted", status.resubmitted),
        ("recirculated", status.recirculated),
        ("waiting", status.waiting),
    ];
    for (name, packets) in counts.into_iter().filter(|(_, packets)| *packets > 0) {
        out.push_str(&format!("{name}: {packets}\n"));
    }
    status.problems.iter().for_each(|problem| out.push_str(&format!("problem: {problem}\n")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_ports_drops_and_problems() {
        let traffic = api::Traffic { received: 7, ..Default::default() };
        let rates = api::Rates { received_packets_s: 3, ..Default::default() };
        let interface = "veth1".to_owned();
        let port = api::PortStatus { number: 1, interface, traffic, rates, ..Default::default() };
        let dropped = |reason: &str, packets| api::Dropped { reason: reason.into(), packets };
        let status = api::Status {
            program: "router.p4".into(),
            digest: "0123456789abcdef".into(),
            seconds: 5,
            placement: Placement::Pipeline,
            threads: 2,
            shared_for: Some("register ingress.flows".into()),
            ports: vec![port],
            deleted: api::Traffic { received: 3, ..Default::default() },
            dropped: vec![dropped("program", 2), dropped("no_port", 0), dropped("no_room", 1)],
            problems: vec!["veth2 is gone".into()],
            ..api::Status::default()
        };
        let expected = "\
router.p4: program 0123456789ab, for 5 s, 2 threads in turn (register ingress.flows), placement pipeline

  port  interface  state  received  bytes  packets/s  sent  bytes  packets/s
  1     veth1      up     7         0      3          0     0      0

deleted ports: 3 received, 0 sent

dropped: 2 program, 1 no_room
problem: veth2 is gone
";
        assert_eq!(text(&status), expected);
    }
}
