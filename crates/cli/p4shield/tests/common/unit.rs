//! A systemd unit as systemd reads it, for tests that run what it says without systemd.

/// A unit's directives. `%i` in them is the instance's name.
pub(crate) struct Unit(Vec<(String, String)>);

impl Unit {
    pub(crate) fn parse(text: &str, instance: &str) -> Self {
        let is_comment = |line: &&str| line.starts_with(['#', ';']);
        let directives = text.lines().filter(|line| !is_comment(line)).filter_map(|line| {
            assert!(!line.ends_with('\\'), "a continued line is not understood here: {line}");
            let (name, value) = line.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().replace("%i", instance)))
        });
        Self(directives.collect())
    }

    /// Returns the value of a directive that the unit has once.
    pub(crate) fn value(&self, directive: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(name, _)| name == directive);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "the unit has {directive} twice");
        value
    }

    /// Returns the words of ExecStart as systemd expands them: `${NAME}` is one word, `$NAME` are its words.
    pub(crate) fn command(&self, environment: &Environment) -> Vec<String> {
        let line = self.value("ExecStart").expect("the unit has no ExecStart");
        let words = line.split_whitespace().flat_map(|word| {
            let Some(name) = word.strip_prefix('$') else {
                assert!(!word.contains(['$', '"', '\'']), "not understood here: {word}");
                return vec![word.to_owned()];
            };
            match name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(name) => vec![environment.value(name).to_owned()],
                None => environment.value(name).split_whitespace().map(str::to_owned).collect(),
            }
        });
        words.collect()
    }
}

/// The variables of a file that a unit names as its EnvironmentFile.
pub(crate) struct Environment(Vec<(String, String)>);

impl Environment {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with(['#', ';']));
        let variables = lines.filter_map(|line| line.split_once('='));
        Self(variables.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect())
    }

    /// Returns the value of a variable, of several the last one, or an empty one.
    pub(crate) fn value(&self, variable: &str) -> &str {
        let value = self.0.iter().rev().find(|(name, _)| name == variable);
        value.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Returns all variables with their values.
    pub(crate) fn all(&self) -> &[(String, String)] {
        &self.0
    }
}
