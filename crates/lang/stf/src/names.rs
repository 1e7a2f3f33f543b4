//! What the names of a script mean in a program.
//!
//! A name is right if it is the full name, or if one full name alone ends with it behind a dot. In the dialect of
//! p4c's eBPF and uBPF tests names are C identifiers: every character that no identifier has is an underscore.

/// Why a name means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing is called so.
    #[error("there is no {what} `{name}`; there are: {known}")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// More than one thing may be meant.
    #[error("{what} `{name}` may be any of {candidates}: write more of the name")]
    Ambiguous {
        /// What was looked for.
        what: &'static str,
        /// The name.
        name: String,
        /// What it may be.
        candidates: String,
    },
}

/// A name in the form in which names are compared: `x$0` is `x[0]`, and in C everything special an underscore.
fn plain(name: &str, c: bool) -> String {
    let name = if c { name.trim_start_matches('_') } else { name.trim_start_matches('.') };
    if c {
        return name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    }
    let mut out = String::new();
    let mut chars = name.chars().peekable();
    while let Some(ch) = chars.next() {
        if ch == '$' && chars.peek().is_some_and(char::is_ascii_digit) {
            out.push('[');
            while let Some(d) = chars.next_if(char::is_ascii_digit) {
                out.push(d);
            }
            out.push(']');
        } else {
            out.push(ch);
        }
    }
    out
}

/// Which of `all` a name means.
///
/// # Errors
/// If it is none or more than one.
pub fn find<'n>(
    what: &'static str,
    name: &str,
    c: bool,
    all: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, NameError> {
    let wanted = plain(name, c);
    let dot = if c { '_' } else { '.' };
    let valid = format!("{wanted}.$valid$");
    let exact = |n: &str| n == wanted || n == format!("{wanted}$") || n == valid;
    let suffix = |n: &str| {
        n.strip_suffix(wanted.as_str()).is_some_and(|rest| rest.ends_with(dot))
            || !c && n.strip_suffix(valid.as_str()).is_some_and(|rest| rest.ends_with(dot))
    };
    // A part of the name may have been left out at its front by the script, or by the program.
    let prefix = |n: &str| wanted.strip_suffix(n).is_some_and(|rest| rest.ends_with(dot));
    let names: Vec<String> = all.clone().map(|n| plain(n, c)).collect();
    for test in [&exact as &dyn Fn(&str) -> bool, &suffix, &prefix] {
        let found: Vec<usize> = (0..names.len()).filter(|i| test(&names[*i])).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(*one),
            several => {
                let mut all: Vec<&str> = several.iter().filter_map(|i| all.clone().nth(*i)).collect();
                all.dedup();
                let candidates = all.join(", ");
                return Err(NameError::Ambiguous { what, name: name.to_owned(), candidates });
            }
        }
    }
    let known = all.collect::<Vec<_>>().join(", ");
    Err(NameError::Unknown { what, name: name.to_owned(), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str, c: bool, all: &[&str]) -> Result<usize, NameError> {
        find("table", name, c, all.iter().copied())
    }

    #[test]
    fn a_unique_suffix_suffices() {
        let all = ["ingress.a.t", "ingress.b.t", "egress.u"];
        assert_eq!(look("u", false, &all), Ok(2));
        assert_eq!(look("b.t", false, &all), Ok(1));
        assert!(matches!(look("t", false, &all), Err(NameError::Ambiguous { .. })));
        assert!(matches!(look("x", false, &all), Err(NameError::Unknown { .. })));
        assert_eq!(look("t", false, &["t", "a.t"]), Ok(0), "a full name comes first");
    }

    #[test]
    fn c_identifiers_name_the_same() {
        assert_eq!(look("pipe_filter_tbl", true, &["pipe.filter_tbl", "pipe.other"]), Ok(0));
        assert_eq!(look("_NoAction", true, &["NoAction", "pipe.a"]), Ok(0));
        assert_eq!(look("headers_ipv4_srcAddr", true, &["hdr.ipv4.dstAddr", "headers.ipv4.srcAddr"]), Ok(1));
    }

    #[test]
    fn elements_and_validity_have_other_spellings() {
        assert_eq!(look("extra$0.h", false, &["hdr.extra[0].h"]), Ok(0));
        assert_eq!(look("ipv4", false, &["hdr.ipv4.$valid$"]), Ok(0));
    }
}
