//! The report as a page with the figures, and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use p4shield_bench::topology::Report;
use p4shield_plot::page::{STYLE, escape};

use super::super::page::section;
use super::{figures, heading, shown};

/// The page's name.
pub(super) const NAME: &str = "topology.html";

/// Writes the page, and `topology.json` with all figures, into a folder, which need not exist.
pub(super) fn write(folder: &Path, report: &Report) -> anyhow::Result<()> {
    let cannot = || format!("cannot write the report into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    std::fs::write(folder.join(NAME), html(report)?).with_context(cannot)?;
    let data = serde_json::to_string_pretty(report)?;
    std::fs::write(folder.join("topology.json"), data).with_context(cannot)
}

fn html(r: &Report) -> anyhow::Result<String> {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Tenants' switches by level</title>\
         <style>{STYLE}table{{font-size:12px}}</style><h1>Tenants' switches by level</h1><p>{}.</p>",
        escape(&heading(r)),
    );
    for (_, svg) in figures::all(&r.cells) {
        out.push_str(&svg?);
    }
    section(&mut out, "All cells", &r.cells.iter().map(shown).collect::<Vec<_>>())?;
    section(&mut out, "Claims", &r.bars)?;
    out.push_str("</html>\n");
    Ok(out)
}
