//! What the host told the P4 VM that decides verdicts, and what the tenant expects of it.

use p4shield_abi::Direction;
use p4shield_abi::log_page::Settings;
use serde::{Deserialize, Serialize};

use super::Report;
use super::finding::{Finding, Notice};
use super::values::Digest;

/// The default of a tenant's `age_limit`, milliseconds.
pub const DEFAULT_AGE_LIMIT_MS: u32 = 500;

/// Settings that the log has to state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedSettings {
    /// The longest age limit of information that the tenant accepts, milliseconds.
    pub age_limit_ms: u32,
    /// Instructions that a program may execute for one packet; none: any number.
    pub budget: Option<u64>,
    /// Whether packets pass while a direction has no program; none: either.
    pub passes_without_program: Option<bool>,
    /// Digest of the whole configuration; none: any.
    pub configuration: Option<Digest>,
}

impl Default for ExpectedSettings {
    fn default() -> Self {
        Self {
            age_limit_ms: DEFAULT_AGE_LIMIT_MS,
            budget: None,
            passes_without_program: None,
            configuration: None,
        }
    }
}

/// The settings in a log record, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatedSettings {
    /// Age from which information is stale, milliseconds.
    pub age_limit_ms: u32,
    /// Instructions that a program may execute for one packet.
    pub budget: u64,
    /// Whether packets of ingress and of egress pass while the direction has no program.
    pub passes_without_program: [bool; 2],
    /// Digest of the whole configuration.
    pub configuration: Digest,
}

impl From<Settings> for StatedSettings {
    fn from(settings: Settings) -> Self {
        let Settings { age_limit_ms, passes_without_program, budget, configuration } = settings;
        Self { age_limit_ms, budget, passes_without_program, configuration: Digest(configuration) }
    }
}

impl std::fmt::Display for StatedSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [ingress, egress] = self.passes_without_program.map(verdict);
        write!(
            f,
            "information up to {} ms old, {} instructions a packet; without a program ingress would \
             {ingress} and egress {egress}; configuration {}",
            self.age_limit_ms, self.budget, self.configuration
        )
    }
}

const fn verdict(passes: bool) -> &'static str {
    if passes { "pass" } else { "drop" }
}

/// Checks records against the expected settings.
pub(super) struct SettingsWatch {
    expected: ExpectedSettings,
    directions: [bool; 2],
    last: Option<Settings>,
}

impl SettingsWatch {
    pub(super) const fn new(expected: ExpectedSettings, directions: [bool; 2]) -> Self {
        Self { expected, directions, last: None }
    }

    /// Takes the settings of a record; reports them once for each change.
    pub(super) fn record(&mut self, settings: Settings, out: &mut Report) {
        let last = self.last.replace(settings);
        if last == Some(settings) {
            return;
        }
        self.compare(settings, out);
        let to = Digest(settings.configuration);
        if let Some(from) = last.map(|last| Digest(last.configuration))
            && from != to
            && self.expected.configuration.is_none()
        {
            out.notices.push(Notice::ConfigurationChanged { from, to });
        }
    }

    fn compare(&self, stated: Settings, out: &mut Report) {
        let mut differ = |setting, stated: String, expected: String| {
            out.findings.push(Finding::OtherSetting { setting, stated, expected });
        };
        let expected = &self.expected;
        if stated.age_limit_ms > expected.age_limit_ms {
            let most = format!("at most {} ms", expected.age_limit_ms);
            differ("age_limit", format!("{} ms", stated.age_limit_ms), most);
        }
        if let Some(budget) = expected.budget.filter(|budget| *budget != stated.budget) {
            differ("budget", stated.budget.to_string(), budget.to_string());
        }
        let others = |passes: bool| {
            let is_other = |d: &Direction| {
                self.directions[*d as usize] && stated.passes_without_program[*d as usize] != passes
            };
            Direction::ALL.into_iter().any(|d| is_other(&d))
        };
        if let Some(passes) = expected.passes_without_program.filter(|passes| others(*passes)) {
            differ("no_program", verdict(!passes).to_owned(), verdict(passes).to_owned());
        }
        let stated = Digest(stated.configuration);
        if let Some(digest) = expected.configuration.filter(|digest| *digest != stated) {
            differ("configuration", stated.to_string(), digest.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATED: Settings = Settings {
        age_limit_ms: 500,
        passes_without_program: [true, false],
        budget: 262_144,
        configuration: [7; 32],
    };

    fn reported(expected: ExpectedSettings, records: &[Settings]) -> (Vec<&'static str>, usize) {
        let (mut watch, mut out) = (SettingsWatch::new(expected, [true, false]), Report::default());
        records.iter().for_each(|settings| watch.record(*settings, &mut out));
        let setting = |finding: &Finding| match finding {
            Finding::OtherSetting { setting, .. } => *setting,
            other => panic!("{other}"),
        };
        (out.findings.iter().map(setting).collect(), out.notices.len())
    }

    #[test]
    fn a_longer_age_limit_is_a_finding_by_default() {
        let forever = Settings { age_limit_ms: u32::MAX, ..STATED };
        assert_eq!(reported(ExpectedSettings::default(), &[STATED, STATED]), (vec![], 0));
        assert_eq!(reported(ExpectedSettings::default(), &[forever, forever]).0, ["age_limit"], "once");
        assert_eq!(reported(ExpectedSettings::default(), &[STATED, forever]).0, ["age_limit"]);
        let accepted = ExpectedSettings { age_limit_ms: u32::MAX, ..ExpectedSettings::default() };
        assert!(reported(accepted, &[forever]).0.is_empty());
    }

    #[test]
    fn expected_settings_are_compared() {
        let same = ExpectedSettings {
            budget: Some(262_144),
            passes_without_program: Some(true),
            configuration: Some(Digest([7; 32])),
            ..ExpectedSettings::default()
        };
        assert!(reported(same.clone(), &[STATED]).0.is_empty(), "egress is not audited");
        let other =
            Settings { passes_without_program: [false; 2], budget: 1, configuration: [8; 32], ..STATED };
        assert_eq!(reported(same, &[other]).0, ["budget", "no_program", "configuration"]);
    }

    #[test]
    fn a_changed_configuration_is_a_notice() {
        let other = Settings { configuration: [8; 32], ..STATED };
        assert_eq!(reported(ExpectedSettings::default(), &[STATED, other, other]), (vec![], 1));
    }
}
