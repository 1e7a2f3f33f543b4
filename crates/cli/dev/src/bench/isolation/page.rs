//! The report as a page with the levels side by side, and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use clap::ValueEnum as _;
use p4shield_bench::isolation::{Attack, Report, Row, Verdict};
use p4shield_bench::name;
use p4shield_bench::topology::{Level, P4};
use p4shield_plot::page::{STYLE, escape};

use super::super::page::section;
use super::super::topology::level;
use super::figures;

/// The page's name.
pub(super) const NAME: &str = "isolation.html";

/// Writes the page, and `isolation.json` with all figures, into a folder, which need not exist.
pub(super) fn write(folder: &Path, report: &Report) -> anyhow::Result<()> {
    let cannot = || format!("cannot write the report into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    std::fs::write(folder.join(NAME), html(report)?).with_context(cannot)?;
    let data = serde_json::to_string_pretty(report)?;
    std::fs::write(folder.join("isolation.json"), data).with_context(cannot)
}

fn html(r: &Report) -> anyhow::Result<String> {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Isolation of tenants</title>\
         <style>{STYLE}table{{font-size:12px}}small{{color:#555}}</style><h1>Isolation of tenants</h1>\
         <p>A victim sends at a steady rate and probes 1,000 times a second, while another tenant acts. Each \
         field has the share of its rate that the victim keeps, its lost probes, the percentiles of its \
         round trip, and what became of the other tenant's deed.</p>",
    );
    for (p4, title) in [(P4::Without, "Without P4"), (P4::With, "With P4 programs")] {
        side_by_side(&mut out, title, &r.rows.iter().filter(|row| row.p4 == p4).collect::<Vec<_>>());
        for (_, svg) in figures::of(&r.rows, p4) {
            out.push_str(&svg?);
        }
    }
    section(&mut out, "Claims, by the worst adversary", &r.bars)?;
    section(&mut out, "All figures", &r.rows)?;
    out.push_str("</html>\n");
    Ok(out)
}

/// Writes a table with a line for each adversary and a column for each level; nothing without rows.
fn side_by_side(out: &mut String, title: &str, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    let has = |l: &Level| rows.iter().any(|row| row.level == *l);
    let levels: Vec<_> = Level::value_variants().iter().copied().filter(has).collect();
    let _ = write!(out, "<h2>{title}</h2><table><tr><th>adversary");
    for at in &levels {
        let _ = write!(out, "<th>{}", level(*at));
    }
    for attack in Attack::value_variants() {
        let of_attack: Vec<_> = rows.iter().filter(|row| row.mode == *attack).collect();
        let Some(first) = of_attack.first() else { continue };
        let _ = write!(out, "<tr><th>{}<br><small>{}</small>", name(first.mode), about(*attack));
        for at in &levels {
            let row = of_attack.iter().find(|row| row.level == *at);
            let _ = write!(out, "<td>{}", row.map(|row| field(row)).unwrap_or_default());
        }
    }
    out.push_str("</table>");
}

/// Returns what an adversary does, as the command's help says it.
fn about(attack: Attack) -> String {
    let value = attack.to_possible_value();
    escape(&value.and_then(|v| v.get_help().map(ToString::to_string)).unwrap_or_default())
}

fn field(row: &Row) -> String {
    let (class, verdict) = match row.verdict {
        Verdict::Idle => ("", "no adversary"),
        Verdict::NoPower => ("", "the adversary has no power here"),
        Verdict::Kept => ("held", "the victim is not harmed"),
        Verdict::Undecided => ("", "undecided: rounds differ, or other work had the cores"),
        Verdict::Harmed => ("broke", "the victim is harmed"),
    };
    let [p50, p90, p99] = [row.micros.p50, row.micros.p90, row.micros.p99].map(|us| us / 1000.0);
    format!(
        "<span class=\"{class}\">{verdict}</span><br>{:.1} % of the rate, {} of {} probes lost<br>\
         p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2} ms<br><small>{}</small>",
        100.0 * row.ratio,
        row.lost_probes,
        row.probes,
        escape(&row.outcome),
    )
}
