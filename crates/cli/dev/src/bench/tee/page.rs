//! The report as a page with the figures, and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use p4shield_bench::tee::Report;
use p4shield_plot::page::{STYLE, escape};

use super::super::page::section;
use super::figures;
use super::tables::{LATENCIES, bar, compared, costs, latencies, maximum, paper, rates, reasons, title_of};

/// The page's name.
pub(super) const NAME: &str = "tee.html";

/// Writes the page, and `tee.json` with all figures, into a folder, which need not exist.
pub(super) fn write(folder: &Path, report: &Report) -> anyhow::Result<()> {
    let cannot = || format!("cannot write the report into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    std::fs::write(folder.join(NAME), html(report)?).with_context(cannot)?;
    let data = serde_json::to_string_pretty(report)?;
    std::fs::write(folder.join("tee.json"), data).with_context(cannot)
}

fn html(r: &Report) -> anyhow::Result<String> {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><title>TEE Time at P4, on this machine</title>\
         <style>{STYLE}table{{font-size:12px}}</style><h1>TEE Time at P4, on this machine</h1>\
         <p>{}. P4 Shield's switch runs the paper's program, beside the paper's T4P4S, which forwarded \
         1500-byte packets. Times are in microseconds, rates in million packets a second.</p><p>{}.</p>",
        escape(&r.processor),
        escape(&bar(r)),
    );
    for (_, svg) in figures::all(r) {
        out.push_str(&svg?);
    }
    section(&mut out, "The line of a batch", &r.rows.iter().map(costs).collect::<Vec<_>>())?;
    section(&mut out, "The maximum", &r.rows.iter().map(maximum).collect::<Vec<_>>())?;
    for lines in r.rows.iter().map(reasons).filter(|lines| !lines.is_empty()) {
        let _ = write!(out, "<pre>{}</pre>", escape(&lines.join("\n")));
    }
    for missing in &r.missing {
        let row = title_of(&missing.row);
        let _ = write!(out, "<p>{} is not measured: {}</p>", escape(&row), escape(&missing.reason));
    }
    for line in compared(r) {
        let _ = write!(out, "<p>{}.</p>", escape(&line));
    }
    section(&mut out, "Rising rates of a sender over veth", &rates(r))?;
    section(&mut out, LATENCIES, &latencies(r))?;
    section(&mut out, "The paper's rows", &r.paper.iter().map(paper).collect::<Vec<_>>())?;
    out.push_str("</html>\n");
    Ok(out)
}
