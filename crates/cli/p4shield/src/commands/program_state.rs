//! `p4shield program counters`, `registers` and `tables`: the state of the programs that run.

use std::fmt::Write as _;
use std::path::Path;

use p4shield_daemon::api::{self, ApiError};
use p4shield_tables::view::{
    ActionView, DirectionView, Inspection, MatchView, Number, ObjectKind, ObjectView, ProgramView, Row, What,
};

use super::watch::Watch;

/// What to show of a VM's programs.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The user VM
    vm: String,
    /// The tenant; needed if several tenants have a VM of this name
    #[arg(long)]
    tenant: Option<String>,
    /// One direction only: ingress (towards the VM) or egress (from it)
    #[arg(long, value_parser = ["ingress", "egress"])]
    direction: Option<String>,
    /// Only what has this name in P4, in full or its last parts
    #[arg(long)]
    name: Option<String>,
    /// The most rows of each object
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    limit: u32,
    /// Show all rows
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Show zeros also in arrays of more than 16 elements
    #[arg(long)]
    zeros: bool,
    #[command(flatten)]
    watch: Watch,
}

impl Show {
    pub(super) fn run(self, what: What, socket: &Path) -> anyhow::Result<()> {
        let passes = |error: &ApiError| match error {
            // The program may be there again the next time.
            ApiError::Failed(why) => Some(why.clone()),
            _ => None,
        };
        self.watch.show(|| self.ask(what, socket), |view| text(view, what), passes).map(drop)
    }

    fn ask(&self, what: What, socket: &Path) -> Result<ProgramView, ApiError> {
        let inspection = Inspection {
            what,
            vm: self.vm.clone(),
            tenant: self.tenant.clone(),
            direction: self.direction.clone(),
            name: self.name.clone(),
            limit: (!self.all).then_some(self.limit),
            from: 0,
            zeros: self.zeros,
        };
        let mut view = api::inspect(socket, &inspection)?;
        complete(&mut view, &inspection, socket)?;
        Ok(view)
    }
}

/// Reads the pages after the first one.
fn complete(view: &mut ProgramView, inspection: &Inspection, socket: &Path) -> Result<(), ApiError> {
    for direction in &mut view.directions {
        let (tenant, of) = (Some(view.tenant.clone()), Some(direction.direction.clone()));
        let page = |name: &str, from| -> Result<Vec<ObjectView>, ApiError> {
            let (tenant, direction, name) = (tenant.clone(), of.clone(), Some(name.to_owned()));
            let page = Inspection { tenant, direction, name, from, ..inspection.clone() };
            Ok(api::inspect(socket, &page)?.directions.into_iter().flat_map(|d| d.objects).collect())
        };
        if !complete_objects(&mut direction.objects, page)? {
            return Err(ApiError::Failed("the program was replaced while it was read".to_owned()));
        }
    }
    Ok(())
}

/// Adds the rows of further pages, which `page` reads by an object's name and the number to continue with.
/// Returns false if the objects are others by now.
pub(super) fn complete_objects<E>(
    objects: &mut [ObjectView],
    page: impl Fn(&str, u32) -> Result<Vec<ObjectView>, E>,
) -> Result<bool, E> {
    for object in objects {
        while let Some(from) = object.next {
            let same = |o: &ObjectView| (&o.name, o.kind, &o.map) == (&object.name, object.kind, &object.map);
            let page = page(&object.name, from)?.into_iter().find(same);
            let Some(page) = page.filter(|p| p.next.is_none_or(|n| n > from)) else { return Ok(false) };
            object.rows.extend(page.rows);
            object.next = page.next;
        }
    }
    Ok(true)
}

/// Returns the view for people.
fn text(view: &ProgramView, what: What) -> String {
    let mut out = String::new();
    for d in &view.directions {
        let digest = d.program.get(..12).unwrap_or(&d.program);
        line(
            &mut out,
            format_args!("tenant {}, VM {}, {}: program {digest}", view.tenant, view.vm, d.direction),
        );
        d.notes.iter().for_each(|note| line(&mut out, format_args!("note: {note}")));
        show_objects(&mut out, d, what);
        out.push('\n');
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// Shows the objects of a program, with their rows.
pub(super) fn show_objects(out: &mut String, d: &DirectionView, what: What) {
    if d.objects.is_empty() {
        let word = match what {
            What::Counters => "counters",
            What::Registers => "registers",
            What::Tables => "tables",
        };
        line(out, format_args!("  the program has no {word}"));
    }
    for o in &d.objects {
        line(out, format_args!("\n{}", heading(o)));
        let rows: Vec<Vec<String>> = o.rows.iter().map(|r| cells(o, r)).collect();
        let default =
            o.default_action.iter().map(|a| vec!["default".to_owned(), format!("-> {}", action(a))]);
        columns(out, &header(o).into_iter().chain(rows).chain(default).collect::<Vec<_>>());
        if o.rows.is_empty() && o.more == 0 && is_array(o) {
            line(out, format_args!("  all are 0"));
        } else if o.rows.is_empty() && o.more == 0 {
            line(out, format_args!("  no entries"));
        }
        if o.more > 0 {
            line(out, format_args!("  … and {} more; --all shows them", o.more));
        }
    }
}

/// Whether the rows are elements with an index.
fn is_array(o: &ObjectView) -> bool {
    matches!(o.kind, ObjectKind::Counter | ObjectKind::Register | ObjectKind::Meter)
}

fn heading(o: &ObjectView) -> String {
    let mut text = format!("{} {}", o.kind.name(), o.name);
    let entries = o.rows.len() as u64 + o.more;
    let _ = match o.kind {
        ObjectKind::Register => write!(text, "[{}], {} bits", o.size, o.width.unwrap_or(0)),
        ObjectKind::Counter | ObjectKind::Meter => {
            write!(text, "[{}] of {}", o.size, o.unit.as_deref().unwrap_or("packets"))
        }
        _ if o.map.is_none() => write!(text, ", {entries} constant entries"),
        ObjectKind::Map => write!(text, ", room for {} entries, in hexadecimal", o.size),
        _ => write!(text, ", {entries} of {} entries", o.size),
    };
    if let Some(metric) = &o.metric {
        let _ = write!(text, ", metric {metric}");
    }
    let keys: Vec<_> = o.keys.iter().map(|k| format!("{} {} {} bits", k.name, k.kind, k.width)).collect();
    if !keys.is_empty() {
        let _ = write!(text, "; keys: {}", keys.join(", "));
    }
    text
}

/// Returns the names of the columns, where they are not in the rows.
fn header(o: &ObjectView) -> Option<Vec<String>> {
    let names: &[&str] = match (o.kind, o.unit.as_deref()) {
        _ if o.rows.is_empty() => return None,
        (ObjectKind::Counter | ObjectKind::DirectCounter, unit) => match unit {
            Some("packets") => &["index", "packets"],
            Some("bytes") => &["index", "bytes"],
            _ => &["index", "packets", "bytes"],
        },
        (ObjectKind::Register, _) => &["index", "value"],
        (ObjectKind::Meter | ObjectKind::DirectMeter, _) => {
            &["index", "committed rate", "burst", "peak rate", "burst"]
        }
        (ObjectKind::Map, _) => &["key", "value"],
        _ => return None,
    };
    Some(names.iter().map(|n| (*n).to_owned()).collect())
}

/// Returns the cells of a row.
fn cells(o: &ObjectView, r: &Row) -> Vec<String> {
    if let Some(raw) = &r.raw {
        let key = r.index.map_or_else(|| raw.key.clone(), |i| i.to_string());
        return vec![key, raw.value.clone()];
    }
    let keys = || {
        let one = |(k, m): (&p4shield_tables::view::KeyView, &MatchView)| format!("{}={m}", k.name);
        o.keys.iter().zip(&r.keys).map(one).collect::<Vec<_>>().join(" ")
    };
    let mut cells = vec![r.index.map_or_else(keys, |i| i.to_string())];
    let is_counter = matches!(o.kind, ObjectKind::Counter | ObjectKind::DirectCounter);
    if is_counter {
        cells.extend(r.packets.iter().chain(&r.bytes).map(u64::to_string));
        return cells;
    }
    cells.extend(r.value.as_ref().map(|v| match v {
        Number::Unsigned(n) => n.to_string(),
        Number::Negative(n) => n.to_string(),
        Number::Wide(digits) => digits.clone(),
    }));
    if let Some(a) = &r.action {
        let mut text = format!("-> {}", action(a));
        let notes = [
            r.priority.map(|n| format!("priority {n}")),
            r.packets.map(|n| format!("{n} packets")),
            r.bytes.map(|n| format!("{n} bytes")),
        ];
        notes.into_iter().flatten().for_each(|note| text.push_str(&format!("  {note}")));
        cells.push(text);
    }
    if let Some(m) = &r.meter {
        let rates = [m.committed_rate, m.committed_burst, m.peak_rate, m.peak_burst];
        if matches!(o.kind, ObjectKind::Meter | ObjectKind::DirectMeter) {
            cells.extend(rates.iter().map(u64::to_string));
        }
    }
    cells
}

fn action(a: &ActionView) -> String {
    let params: Vec<_> = a.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{}({})", a.name, params.join(", "))
}

/// Prints cells in columns.
pub(super) fn columns(out: &mut String, rows: &[Vec<String>]) {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..count).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let text = cells.collect::<Vec<_>>().join("  ");
        line(out, format_args!("  {}", text.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_tables::view::KeyView;

    #[test]
    fn counters_and_tables_are_shown_in_columns() {
        let row = |index, packets, bytes| Row {
            index: Some(index),
            packets: Some(packets),
            bytes: Some(bytes),
            ..Row::default()
        };
        let counter = ObjectView {
            name: "pipe.seen".into(),
            kind: ObjectKind::Counter,
            map: Some("pipe_seen".into()),
            unit: Some("packets and bytes".into()),
            metric: Some("seen".into()),
            size: 1000,
            rows: vec![row(3, 2, 120), row(900, 1, 60)],
            more: 7,
            ..ObjectView::default()
        };
        let forward =
            ActionView { name: "pipe.forward".into(), params: vec![("port".into(), "0x1ff".into())] };
        let entry = Row {
            keys: vec![MatchView::Prefix("0x0a000000".into(), 8), MatchView::Any],
            action: Some(forward),
            packets: Some(9),
            ..Row::default()
        };
        let key = |name: &str, kind: &str, width| KeyView { name: name.into(), kind: kind.into(), width };
        let table = ObjectView {
            name: "pipe.routes".into(),
            kind: ObjectKind::Table,
            map: Some("pipe_routes".into()),
            keys: vec![key("hdr.ip.dst", "lpm", 32), key("proto", "ternary", 8)],
            size: 64,
            default_action: Some(ActionView { name: "pipe.drop".into(), params: Vec::new() }),
            rows: vec![entry],
            ..ObjectView::default()
        };
        let direction = DirectionView {
            direction: "ingress".into(),
            program: "0123456789abcdef".into(),
            objects: vec![counter, table],
            ..DirectionView::default()
        };
        let view = ProgramView { tenant: "alice".into(), vm: "web".into(), directions: vec![direction] };
        let expected = "\
tenant alice, VM web, ingress: program 0123456789ab

counter pipe.seen[1000] of packets and bytes, metric seen
  index  packets  bytes
  3      2        120
  900    1        60
  … and 7 more; --all shows them

table pipe.routes, 1 of 64 entries; keys: hdr.ip.dst lpm 32 bits, proto ternary 8 bits
  hdr.ip.dst=0x0a000000/8 proto=_  -> pipe.forward(port=0x1ff)  9 packets
  default                          -> pipe.drop()

";
        assert_eq!(text(&view, What::Counters), expected);
    }
}
