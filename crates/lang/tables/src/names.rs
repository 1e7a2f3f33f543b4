//! Names as people and scripts write them, and the program's objects that they refer to.
//!
//! A name matches if it is the full name of an object, or if it is a suffix of exactly one full name after
//! a dot. In the dialect of p4c's eBPF and uBPF tests, names are C identifiers: an underscore replaces
//! every character that is invalid in identifiers.

/// Reason why a name cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No object has this name.
    #[error("unknown {what} `{name}`; known: {known}")]
    Unknown {
        /// Kind of the object.
        what: &'static str,
        /// The name.
        name: String,
        /// Names of the known objects.
        known: String,
    },
    /// Several objects match.
    #[error("{what} `{name}` is ambiguous between {candidates}: write more of the name")]
    Ambiguous {
        /// Kind of the object.
        what: &'static str,
        /// The name.
        name: String,
        /// Names of the candidates.
        candidates: String,
    },
}

/// Normalises a name for comparison: `x$0` becomes `x[0]`; in C identifiers `_` replaces special characters.
fn normalised(name: &str, c: bool) -> String {
    let name = if c { name.trim_start_matches('_') } else { name.trim_start_matches('.') };
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
    if c { out.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect() } else { out }
}

/// Returns the index of the object that a name refers to.
///
/// # Errors
/// If the name matches no or several objects.
pub fn find<'n>(
    what: &'static str,
    name: &str,
    c: bool,
    all: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, NameError> {
    let wanted = normalised(name, c);
    let dot = if c { '_' } else { '.' };
    let valid = format!("{wanted}.$valid$");
    let exact = |n: &str| n == wanted || n == format!("{wanted}$") || n == valid;
    let suffix = |n: &str| {
        n.strip_suffix(wanted.as_str()).is_some_and(|rest| rest.ends_with(dot))
            || !c && n.strip_suffix(valid.as_str()).is_some_and(|rest| rest.ends_with(dot))
    };
    // The script or the program may omit the front part of the name.
    let prefix = |n: &str| wanted.strip_suffix(n).is_some_and(|rest| rest.ends_with(dot));
    let names: Vec<String> = all.clone().map(|n| normalised(n, c)).collect();
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

    fn find_table(name: &str, c: bool, all: &[&str]) -> Result<usize, NameError> {
        find("table", name, c, all.iter().copied())
    }

    #[test]
    fn a_unique_suffix_suffices() {
        let all = ["ingress.a.t", "ingress.b.t", "egress.u"];
        assert_eq!(find_table("u", false, &all), Ok(2));
        assert_eq!(find_table("b.t", false, &all), Ok(1));
        assert!(matches!(find_table("t", false, &all), Err(NameError::Ambiguous { .. })));
        assert!(matches!(find_table("x", false, &all), Err(NameError::Unknown { .. })));
        assert_eq!(find_table("t", false, &["t", "a.t"]), Ok(0), "a full name comes first");
    }

    #[test]
    fn c_identifiers_refer_to_the_same_objects() {
        assert_eq!(find_table("pipe_filter_tbl", true, &["pipe.filter_tbl", "pipe.other"]), Ok(0));
        assert_eq!(find_table("_NoAction", true, &["NoAction", "pipe.a"]), Ok(0));
        assert_eq!(
            find_table("headers_ipv4_srcAddr", true, &["hdr.ipv4.dstAddr", "headers.ipv4.srcAddr"]),
            Ok(1)
        );
    }

    #[test]
    fn elements_and_validity_have_other_spellings() {
        assert_eq!(find_table("extra$0.h", false, &["hdr.extra[0].h"]), Ok(0));
        assert_eq!(find_table("headers.ipv4$0.src", true, &["headers.ipv4[0].src"]), Ok(0));
        assert_eq!(find_table("ipv4", false, &["hdr.ipv4.$valid$"]), Ok(0));
    }
}
