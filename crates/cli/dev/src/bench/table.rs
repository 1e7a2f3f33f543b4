//! Tables of figures: a column for each field, with its name in the JSON form.

use p4shield_console::output;
use serde::Serialize;
use serde_json::Value;

/// Prints a title and the rows; nothing if there are none.
///
/// # Errors
/// A row cannot be serialised.
pub(super) fn print<R: Serialize>(title: &str, rows: &[R]) -> anyhow::Result<()> {
    let lines = cells(rows)?;
    if !lines.is_empty() {
        output::line(format_args!("\n{title}"));
    }
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        output::line(cells.collect::<Vec<_>>().join("  "));
    }
    Ok(())
}

/// Returns the names of the columns, then the cells of each row; nothing if there are no rows.
///
/// # Errors
/// A row cannot be serialised.
pub(super) fn cells<R: Serialize>(rows: &[R]) -> anyhow::Result<Vec<Vec<String>>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let (mut names, mut cells) = (Vec::new(), Vec::new());
        flatten("", &serde_json::to_value(row)?, &mut |name, cell| {
            names.push(name.to_owned());
            cells.push(cell);
        });
        if lines.is_empty() {
            lines.push(names);
        }
        lines.push(cells);
    }
    Ok(lines)
}

/// Calls `add` with the name and text of each field of a row; the fields of a field have its name in front.
fn flatten(name: &str, value: &Value, add: &mut impl FnMut(&str, String)) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                flatten(&name, value, add);
            }
        }
        Value::Array(values) => add(name, values.iter().map(text).collect::<Vec<_>>().join("/")),
        value => add(name, text(value)),
    }
}

/// Returns a value as a cell: fractions with four digits or less.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => match value.as_f64().filter(|_| value.is_f64()) {
            Some(n) if n.abs() < 10.0 => format!("{n:.3}"),
            Some(n) => format!("{n:.1}"),
            None => value.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_columns_in_their_order() {
        let row = serde_json::json!({"z": "tcp", "micros": {"p50": 1.25, "p99": 123.456}, "a": null,
            "both": [1, 2]});
        let mut found = Vec::new();
        flatten("", &row, &mut |name, cell| found.push(format!("{name}={cell}")));
        assert_eq!(found, ["z=tcp", "micros.p50=1.250", "micros.p99=123.5", "a=-", "both=1/2"]);
    }
}
