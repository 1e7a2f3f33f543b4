//! The syntax of systemd's unit files, as far as environments need it (systemd.syntax(7), systemd.exec(5)).

use std::path::{Path, PathBuf};

/// A setting, in the order of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Its section, without brackets.
    pub(crate) section: String,
    /// Its name.
    pub(crate) name: String,
    /// Its value, with continued lines joined.
    pub(crate) value: String,
    /// The file that contains it.
    pub(crate) file: PathBuf,
}

/// Parses a unit file or drop-in. Skips lines that are no settings, as systemd does.
pub(crate) fn parse(file: &Path, text: &str) -> Vec<Setting> {
    let (mut settings, mut section) = (Vec::new(), String::new());
    let mut lines = text.lines().filter(|l| !l.trim_start().starts_with(['#', ';']));
    while let Some(line) = lines.next() {
        let mut line = line.trim().to_owned();
        while let Some(start) = line.strip_suffix('\\') {
            line = format!("{} {}", start.trim_end(), lines.next().unwrap_or_default().trim());
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((name, value)) = line.split_once('=') {
            settings.push(Setting {
                section: section.clone(),
                name: name.trim_end().to_owned(),
                value: value.trim_start().to_owned(),
                file: file.to_owned(),
            });
        }
    }
    settings
}

/// Splits a value into words: blanks separate, quotes group, a backslash escapes the next character.
pub(crate) fn words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut signs = value.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some(q), s) if s == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            (None, s) if s.is_whitespace() => words.extend(word.take()),
            (_, '\\') => word.get_or_insert_default().extend(signs.next()),
            (_, s) => word.get_or_insert_default().push(s),
        }
    }
    words.extend(word);
    words
}

/// Quotes a word for `Environment=`, and doubles `%`, which starts a specifier.
pub(crate) fn quote(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{escaped}\"")
}

/// Parses an `EnvironmentFile`: one variable per line, with optional quotes around values.
pub(crate) fn environment_file(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';']));
    let pair = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let value = words(value).join(" ");
        Some((name.trim().to_owned(), value))
    };
    lines.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_are_read_as_systemd_reads_them() {
        let text = "# comment\n[Unit]\nAfter = a.service\n[Service]\nExecStart=/bin/x \\\n  # no comment \
                    inside? skipped\n   --y \\\n z\n\
                    ; another\nnonsense\nEnvironment=A=1 \"B=2 3\"\n";
        let settings = parse(Path::new("f"), text);
        let all: Vec<_> = settings.iter().map(|s| (&*s.section, &*s.name, &*s.value)).collect();
        assert_eq!(
            all,
            [
                ("Unit", "After", "a.service"),
                ("Service", "ExecStart", "/bin/x --y z"),
                ("Service", "Environment", "A=1 \"B=2 3\""),
            ]
        );
    }

    #[test]
    fn words_hold_together_in_quotes() {
        assert_eq!(words(r#" A=1  "B=2 3" 'C="x"' D\ e "" "#), ["A=1", "B=2 3", "C=\"x\"", "D e", ""]);
        assert_eq!(words("\"open"), ["open"]);
        assert_eq!(words("\\"), [""]);
    }

    #[test]
    fn environment_files_have_a_variable_a_line() {
        let text = "# c\nOVS_CTL_OPTS=\"--ovs-user=a:b --x\"\n\nPLAIN=a b\nEMPTY=\nnone\n";
        let expected = [("OVS_CTL_OPTS", "--ovs-user=a:b --x"), ("PLAIN", "a b"), ("EMPTY", "")];
        assert_eq!(environment_file(text), expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    proptest! {
        #[test]
        fn quoted_words_are_parsed_back(word in "[ -~]{0,40}") {
            let quoted = quote(&word).replace("%%", "%");
            prop_assert_eq!(words(&quoted), [word]);
        }

        #[test]
        fn no_text_causes_a_panic(text in "\\PC{0,200}|[\\[\\]=\\\\\"'\n #;a]{0,200}") {
            for setting in parse(Path::new("f"), &text) {
                words(&setting.value);
            }
            environment_file(&text);
        }
    }
}
