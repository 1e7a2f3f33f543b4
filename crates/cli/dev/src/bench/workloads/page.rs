//! The report as a page with the paper's figures, and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use p4shield_bench::topology::{Cell, P4};
use p4shield_bench::workloads::Report;
use p4shield_plot::page::{STYLE, escape};
use serde::Deserialize;

use super::super::page::section;
use super::super::{Chart, topology};
use super::{about, costs, figures, paper, shown};

/// The page's name.
pub(super) const NAME: &str = "workloads.html";

/// The part of a report of `bench topology` that this page needs.
#[derive(Deserialize)]
struct Packets {
    cells: Vec<Cell>,
}

/// Reads the cells of a report of `bench topology`: those without P4 programs, which the workloads have not.
pub(super) fn packets(file: &Path) -> anyhow::Result<Vec<Cell>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut packets: Packets = serde_json::from_str(&text).with_context(|| {
        format!("{} is no topology.json that `bench topology --report` of this version wrote", file.display())
    })?;
    packets.cells.retain(|cell| cell.p4 == P4::Without);
    Ok(packets.cells)
}

/// Writes the page, and `workloads.json` with all figures, into a folder, which need not exist.
pub(super) fn write(folder: &Path, report: &Report, packets: &[Cell]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write the report into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    std::fs::write(folder.join(NAME), html(report, packets)?).with_context(cannot)?;
    let data = serde_json::to_string_pretty(report)?;
    std::fs::write(folder.join("workloads.json"), data).with_context(cannot)
}

fn html(r: &Report, packets: &[Cell]) -> anyhow::Result<String> {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Tenants' switches beside MTS</title>\
         <style>{STYLE}table{{font-size:12px}}</style><h1>Tenants' switches beside the MTS paper</h1>\
         <p>Thimmaraju et al., ATC 2019: figures 5 and 6 measured here, in shared mode.</p>",
    );
    if packets.is_empty() {
        out.push_str("<p>Figure 5 needs a report of <code>bench topology</code>: --topology names it.</p>");
    } else {
        draw(&mut out, "Figure 5: packets", topology::figures::all(packets))?;
    }
    draw(&mut out, "Figure 6: programs", figures::all(&r.cells))?;
    let _ = write!(out, "<p>{}.</p>", escape(&about(r)));
    section(&mut out, "All cells of figure 6", &r.cells.iter().map(shown).collect::<Vec<_>>())?;
    section(&mut out, "The paper's values beside ours", &paper::beside(packets, &r.cells))?;
    out.push_str(
        "<p>The values are those that the paper's text states, by its sections. The paper has four tenants, \
         10 Gbit/s, SR-IOV and virtual machines; its web server is Apache, and its clients are on another \
         machine. Its isolated mode is not measured here.</p>",
    );
    let costs = costs::of(packets, &r.cells);
    section(&mut out, "Where a gain of 1.5 to 2 comes from: µs of the switches' core", &costs)?;
    for paragraph in costs::TEXT.lines() {
        let _ = write!(out, "<p>{}</p>", escape(paragraph));
    }
    out.push_str("</html>\n");
    Ok(out)
}

fn draw(out: &mut String, title: &str, charts: Vec<Chart>) -> anyhow::Result<()> {
    let _ = write!(out, "<h2>{}</h2>", escape(title));
    for (_, svg) in charts {
        out.push_str(&svg?);
    }
    Ok(())
}
