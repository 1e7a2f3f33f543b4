//! Text for people: on a terminal, in a log, in a line of status.
//!
//! [`printable`], [`printable_lines`] and [`printable_output`] clean another party's text; [`chain`] shows an
//! error with its causes.

#![forbid(unsafe_code)]

/// The most characters of another party's text that are shown.
const MAX_SHOWN: usize = 4096;

/// Text of another party on one line: what could confuse a terminal, reverse a line or forge
/// another one is replaced, and what is beyond 4096 characters left out.
#[must_use]
pub fn printable(text: &str) -> String {
    let plain = |c: char| if c == '\n' || c == '\t' { ' ' } else { visible(c) };
    text.chars().take(MAX_SHOWN).map(plain).collect()
}

/// As [`printable`], with its lines: each but the first is set in and marked, so that none can be
/// taken for a line of ours, in a log or on a terminal.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    let mut lines = String::new();
    for c in text.chars().take(MAX_SHOWN) {
        match c {
            '\n' => lines.push_str("\n    | "),
            '\t' => lines.push(c),
            _ => lines.push(visible(c)),
        }
    }
    lines
}

/// Output of another party's program, with its lines and tabs and of any length: what could confuse a
/// terminal is replaced.
#[must_use]
pub fn printable_output(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || c == '\t' { c } else { visible(c) }).collect()
}

/// A character that shows as itself, alone and in its place.
const fn visible(c: char) -> char {
    // Controls, and what changes the direction of text or the place of what follows without being seen.
    let hidden = matches!(
        c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    if hidden { '\u{fffd}' } else { c }
}

/// Returns an error and its causes, on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_p4_vm_cannot_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r\0"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
        assert_eq!(printable("\u{9b}2J\u{202e}abc\u{2028}"), "\u{fffd}2J\u{fffd}abc\u{fffd}");
        assert_eq!(printable(&"x".repeat(9999)).len(), 4096);
        assert_eq!(printable_output("a\x1b[2J\tb\r\n"), "a\u{fffd}[2J\tb\u{fffd}\n");
    }

    #[test]
    fn text_of_a_p4_vm_forges_no_line() {
        let forged = "no\ntenant bob: P4 VM runs as process 1\r\u{2028}tenant bob";
        assert_eq!(printable(forged).lines().count(), 1);
        let lines = printable_lines(forged);
        assert!(lines.lines().skip(1).all(|l| l.starts_with("    | ")), "{lines}");
        assert!(printable_lines(&"\n".repeat(9999)).len() < 40_000);
    }
}
