//! `p4shield switch trace`.

use std::io::Write as _;
use std::time::Duration;

use p4shield_console::{Exit, output};
use p4shield_p4switch::api::{self, EventView, PointKind, RecordView, StepView, Wanted};

use super::Socket;
use super::recorded::{Limits, clock, failed, follow, take};

/// Show what the program does with packets: states, tables, actions, conditions
///
/// The switch verifies the program once more, compiled for tracing, and runs it as long as the trace lasts;
/// tables and registers stay. Packets are slower then; without a trace, tracing costs nothing. Needs a
/// program that the switch has as P4 source.
///
/// Examples:
///
///   p4shield switch trace                                the next 10 packets
///   p4shield switch trace --port 1 --dropped             those from port 1 that are dropped
///   p4shield switch trace --through ipv4_lpm --count 1   the next one that the table ipv4_lpm sees
///   p4shield switch trace --packet 02000000000108... --port 1
///
/// A packet given with --packet is judged as if it had arrived: it counts, changes registers, and leaves.
/// A packet that waits in a queue appears when its last copy has left.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Trace {
    /// Show packets that arrive at this port; with --packet, the port at which it arrives
    #[arg(long, value_name = "NUMBER")]
    port: Option<u16>,
    /// Show packets that leave by this port
    #[arg(long, value_name = "NUMBER")]
    leaves_by: Option<u16>,
    /// Show packets that pass the parser state, control, table, action or extern of this name
    #[arg(long, value_name = "NAME")]
    through: Option<String>,
    /// Show packets of which a copy is dropped
    #[arg(long)]
    dropped: bool,
    /// Send this packet through the program: hexadecimal, from the Ethernet header on
    #[arg(long, value_name = "HEX", requires = "port", value_parser = packet)]
    #[arg(conflicts_with_all = ["leaves_by", "through", "dropped"])]
    packet: Option<Packet>,
    #[command(flatten)]
    limits: Limits,
    /// Print JSON, one line for each packet
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// A packet's bytes.
#[derive(Clone, Debug)]
pub(super) struct Packet(pub(super) Vec<u8>);

/// Parses hexadecimal bytes, with blanks and colons between them.
pub(super) fn packet(text: &str) -> Result<Packet, String> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    let bytes = hex::decode(digits.strip_prefix("0x").unwrap_or(&digits)).map_err(|e| e.to_string())?;
    if bytes.is_empty() { Err("the packet has no bytes".to_owned()) } else { Ok(Packet(bytes)) }
}

impl Trace {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let socket = &self.socket.socket;
        let json = self.json;
        let mut show = |record: &RecordView| print(record, json);
        if let (Some(Packet(bytes)), Some(port)) = (&self.packet, self.port) {
            let records = api::inject(socket, port, bytes).map_err(failed)?;
            if records.done {
                records.packets.iter().try_for_each(&mut show)?;
                return Ok(Exit::Done);
            }
            output::note("the packet waits in a queue; Ctrl-C ends the trace");
            return take(socket, &self.limits, show);
        }
        let Self { port, leaves_by, through, dropped, limits, .. } = self;
        let wanted = Wanted { port, leaves_by, through, dropped, events: true, most: limits.count };
        follow(socket, wanted, &limits, show)
    }
}

fn print(record: &RecordView, json: bool) -> anyhow::Result<()> {
    let mut text = if json { serde_json::to_string(record)? + "\n" } else { text(record) };
    if !json {
        text.push('\n');
    }
    // At once, for readers behind a pipe.
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Columns of what happened, before its place.
const WIDTH: usize = 72;

fn text(record: &RecordView) -> String {
    let mut out =
        format!("{} port {}, {} bytes\n", clock(record.time_ns), record.port, record.bytes.len() / 2);
    for step in &record.steps {
        match step {
            // Where most runs begin.
            StepView::Program(event) if is_arrival(event) => {}
            StepView::Program(event) => {
                let (what, place) = (program(event), event.place.rsplit('/').next().unwrap_or_default());
                out.push_str(&format!("  {what:WIDTH$} {place}\n"));
            }
            step => out.push_str(&format!("  {}\n", fate(step))),
        }
    }
    out
}

fn is_arrival(event: &EventView) -> bool {
    event.kind == PointKind::Run && event.values.first().is_some_and(|(_, from)| from == "arrival")
}

fn program(event: &EventView) -> String {
    let EventView { kind, name, values, .. } = event;
    let listed = |values: &[(String, String)]| {
        let list: Vec<_> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if list.is_empty() { String::new() } else { format!(" {}", list.join(" ")) }
    };
    let first = values.first().map_or("", |(_, value)| value.as_str());
    let is_true = first == "0x1";
    match kind {
        PointKind::Run => format!("run:{}", listed(values)),
        PointKind::State => format!("state {name}"),
        PointKind::Parsed => format!("parser ends: {first}"),
        PointKind::Control => format!("control {name}"),
        PointKind::Table => format!("table {name}:{}", listed(values)),
        PointKind::Action => {
            let params = listed(values.get(1..).unwrap_or_default());
            format!("  {}: {name}{params}", if is_true { "hit" } else { "miss" })
        }
        PointKind::Call => format!("action {name}"),
        PointKind::Extern => format!("extern {name}"),
        PointKind::Condition => format!("if ({name}): {is_true}"),
    }
}

fn fate(step: &StepView) -> String {
    match step {
        StepView::Sent { port, bytes } => format!("leaves by port {port}, {} bytes", bytes.len() / 2),
        StepView::Queued { port } => format!("waits in the queue of port {port}"),
        StepView::Waited { port, nanoseconds } => {
            let time = Duration::from_nanos(*nanoseconds);
            format!("leaves the queue of port {port} after {time:.1?}")
        }
        StepView::Called => "calls a function in the compartment".to_owned(),
        StepView::Behind => "waits for packets of its flow".to_owned(),
        StepView::Answered { nanoseconds } => {
            format!("goes on after {:.1?}", Duration::from_nanos(*nanoseconds))
        }
        StepView::Dropped { reason } => format!("dropped: {reason}"),
        StepView::Traffic(what) => what.clone(),
        StepView::Program(event) => event.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: PointKind, name: &str, values: &[(&str, &str)]) -> StepView {
        let values = values.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        StepView::Program(EventView { kind, name: name.into(), place: "r.p4:7".into(), values })
    }

    #[test]
    fn a_trace_reads_from_top_to_bottom() {
        let record = RecordView {
            time_ns: 1_000_000_500_000_000,
            port: 1,
            bytes: "00".repeat(64),
            steps: vec![
                event(PointKind::State, "start", &[]),
                event(PointKind::Parsed, "parser", &[("error", "NoError")]),
                event(PointKind::Condition, "hdr.ipv4.isValid()", &[("is", "0x1")]),
                event(PointKind::Table, "In.routes", &[("dst", "0x0a000001")]),
                event(PointKind::Action, "In.forward", &[("hit", "0x1"), ("port", "0x002")]),
                StepView::Sent { port: 2, bytes: "00".repeat(60) },
            ],
        };
        let shown = text(&record);
        let lines: Vec<_> =
            shown.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "state start r.p4:7",
            "parser ends: NoError r.p4:7",
            "if (hdr.ipv4.isValid()): true r.p4:7",
            "table In.routes: dst=0x0a000001 r.p4:7",
            "hit: In.forward port=0x002 r.p4:7",
            "leaves by port 2, 60 bytes",
        ];
        assert!(lines[0].ends_with("port 1, 64 bytes"), "{shown}");
        assert_eq!(lines[1..], expected);
    }

    #[test]
    fn a_packet_may_have_spaces_and_colons() {
        assert_eq!(packet("0x02:00 00 0a").unwrap().0, [2, 0, 0, 10]);
        assert!(packet("0").is_err() && packet("").is_err());
    }
}
