//! Parts of reports that are pages.

use std::fmt::Write as _;

use p4shield_plot::page::escape;
use serde::Serialize;

use super::table::cells;

/// Writes a table, if there are rows.
///
/// # Errors
/// A row cannot be serialised.
pub(super) fn section<R: Serialize>(out: &mut String, title: &str, rows: &[R]) -> anyhow::Result<()> {
    let lines = cells(rows)?;
    for (n, line) in lines.iter().enumerate() {
        if n == 0 {
            // Writing to a String cannot fail.
            let _ = write!(out, "<h2>{}</h2><table>", escape(title));
        }
        out.push_str("<tr>");
        for cell in line {
            let _ = write!(out, "{}{}", if n == 0 { "<th>" } else { "<td>" }, escape(cell));
        }
    }
    out.push_str(if lines.is_empty() { "" } else { "</table>" });
    Ok(())
}
