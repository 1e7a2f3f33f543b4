//! Problems of a TOML file that a person wrote: a configuration, a policy, a manifest.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::path::Path;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, with the key, and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl Problem {
    /// A problem with what is at `span`, in bytes of the file's text.
    #[must_use]
    pub fn at(text: &str, span: Range<usize>, message: String) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line, column, message }
    }

    /// Converts an error of the TOML parser: syntax, unknown keys, wrong types, missing keys.
    #[must_use]
    pub fn syntax(text: &str, error: &toml::de::Error) -> Self {
        Self::at(text, error.span().unwrap_or(0..0), error.message().trim().replace('\n', "; "))
    }

    /// Returns the text of an error that has all problems of a file, one to a line.
    #[must_use]
    pub fn list(file: &Path, problems: &[Self]) -> String {
        let lines: Vec<_> = problems.iter().map(|p| format!("{}:{p}", file.display())).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_line_and_column_in_characters() {
        let text = "a = 1\nü = \"x\"\n";
        let at = text.find('x').unwrap();
        let problem = Problem::at(text, at..at + 1, "no x".to_owned());
        assert_eq!(problem.to_string(), "2:6: no x");
        assert_eq!(Problem::at(text, 99..100, String::new()).line, 3, "behind the end is at the end");
        let list = Problem::list(Path::new("f.toml"), &[problem.clone(), problem]);
        assert_eq!(list, "f.toml:2:6: no x\nf.toml:2:6: no x");
    }

    #[test]
    fn the_parsers_error_is_at_what_it_refuses() {
        let text = "a = 1\nb = [\n";
        let error = toml::from_str::<toml::Table>(text).unwrap_err();
        assert!(Problem::syntax(text, &error).line >= 2, "{error}");
    }
}
