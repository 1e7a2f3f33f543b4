//! CSV: the entries of one table. The first line names the columns: keys, then `action`, then parameters;
//! a column `priority` may stand anywhere. An empty field is left out.

use crate::{FileError, Located, Problem};
use csv::{Position, ReaderBuilder, StringRecord, Trim};
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::write::{Entry, Write};

const USAGE: &str =
    "the first line names the columns: keys, `action`, parameters; `priority` where entries have one";

pub(crate) fn read(table: &str, text: &str) -> Result<Vec<Located>, FileError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| failed(text, &e))?.clone();
    let Some(action) = header.iter().position(|name| name == "action") else {
        return Err(Problem::Csv(USAGE.to_owned()).at(1));
    };
    let mut writes = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| failed(text, &e))?;
        let line = line_of(text, record.position());
        let entry = entry(table, &header, action, &record).map_err(|problem| problem.at(line))?;
        writes.push(Located { line, write: Write::Add(entry) });
    }
    Ok(writes)
}

fn entry(table: &str, header: &StringRecord, action: usize, record: &StringRecord) -> Result<Entry, Problem> {
    let (mut matches, mut params) = (MatchText::default(), Vec::new());
    for (at, (name, value)) in header.iter().zip(record).enumerate() {
        if value.is_empty() || at == action {
            continue;
        }
        if name == "priority" {
            let wrong = |_| Problem::Csv(format!("`{value}` is no priority"));
            matches.priority = Some(value.parse().map_err(wrong)?);
            continue;
        }
        let named = Named { name: Some(name.to_owned()), value: value.to_owned() };
        if at < action { matches.keys.push(named) } else { params.push(named) }
    }
    let name = record.get(action).unwrap_or_default().to_owned();
    Ok(Entry { table: table.to_owned(), matches, action: ActionText { name, params } })
}

/// Returns the line of a record. Its position is that of the empty lines and comments before it.
fn line_of(text: &str, position: Option<&Position>) -> usize {
    let Some(position) = position else { return 1 };
    let rest = text.get(position.byte() as usize..).unwrap_or_default();
    let skipped = rest.lines().take_while(|line| line.is_empty() || line.starts_with('#'));
    position.line() as usize + skipped.count()
}

fn failed(text: &str, error: &csv::Error) -> FileError {
    let line = line_of(text, error.position());
    let why = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the line has {len} fields, but the first line names {expected_len} columns")
        }
        _ => error.to_string(),
    };
    Problem::Csv(why).at(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, value: &str) -> Named {
        Named { name: Some(name.into()), value: value.into() }
    }

    #[test]
    fn columns_before_the_action_are_keys() {
        let text = "dst, action, next_hop, port, priority\n\n# the first\n\n\
                    10.0.1.0/24, forward, 02:00:00:00:00:01, 1,\n\
                    10.0.0.0/8, drop, , , 7\n";
        let writes = read("routes", text).unwrap();
        let lines: Vec<_> = writes.iter().map(|w| w.line).collect();
        assert_eq!(lines, [5, 6]);
        let Write::Add(first) = &writes[0].write else { panic!("{writes:?}") };
        assert_eq!(first.matches, MatchText { keys: vec![named("dst", "10.0.1.0/24")], priority: None });
        assert_eq!(first.action.params, [named("next_hop", "02:00:00:00:00:01"), named("port", "1")]);
        let Write::Add(second) = &writes[1].write else { panic!("{writes:?}") };
        assert_eq!((second.action.params.len(), second.matches.priority), (0, Some(7)));
    }

    #[test]
    fn wrong_lines_of_csv_are_named() {
        for (text, line, part) in [
            ("dst,port\n", 1, "names the columns"),
            ("", 1, "names the columns"),
            ("dst,action\n1,drop\n1,drop,2\n", 3, "has 3 fields"),
            ("dst,priority,action\n1,high,drop\n", 2, "`high` is no priority"),
        ] {
            let error = read("routes", text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
