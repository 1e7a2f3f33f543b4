//! What the host says of a tenant and a VM that decides verdicts, as the VM's log records state it.

use p4shield_abi::Direction;
use p4shield_abi::log_page::Settings;
use p4shield_bundle::PublicKey;
use p4shield_seal::AgeLimit;
use sha2::{Digest, Sha256};

/// What the host's first message says of the tenant.
#[derive(Default)]
pub(crate) struct TenantSettings {
    pub(crate) name: String,
    pub(crate) limit: AgeLimit,
    pub(crate) passes_without_program: bool,
    pub(crate) log_interval_ms: u32,
    pub(crate) budget: u64,
    pub(crate) min_epoch: u64,
}

/// The terms under which a VM's packets are judged; they hold as long as its pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecidingTerms {
    /// Age limit of the VM's information.
    pub limit: AgeLimit,
    /// Instructions that a program may execute for one packet.
    pub budget: u64,
    /// SHA-256 digest of the configuration.
    pub configuration: [u8; 32],
}

impl DecidingTerms {
    /// Returns the terms of a VM whose tenant has pinned `bundle_key`.
    pub(crate) fn of(settings: &TenantSettings, vm: &str, bundle_key: Option<&PublicKey>) -> Self {
        let configuration = Sha256::digest(text(settings, vm, bundle_key)).into();
        Self { limit: settings.limit, budget: settings.budget, configuration }
    }

    /// Returns what a record states. `passes` says whether packets of a direction without a program pass.
    pub(crate) fn stated(&self, passes: impl Fn(Direction) -> bool) -> Settings {
        Settings {
            age_limit_ms: age_limit_ms(&self.limit),
            passes_without_program: Direction::ALL.map(passes),
            budget: self.budget,
            configuration: self.configuration,
        }
    }
}

/// Returns the age limit in the unit of the control protocol.
pub(crate) fn age_limit_ms(limit: &AgeLimit) -> u32 {
    u32::try_from(limit.max_age.as_millis()).unwrap_or(u32::MAX)
}

/// Returns the text whose digest a tenant computes for `p4shield audit --expect-configuration`; the how-to
/// "Audit" shows it. Names contain no blanks, so that two configurations never give one text.
fn text(settings: &TenantSettings, vm: &str, bundle_key: Option<&PublicKey>) -> String {
    let key = bundle_key.map_or_else(|| "none".to_owned(), ToString::to_string);
    let no_program = if settings.passes_without_program { "pass" } else { "drop" };
    format!(
        "p4shield configuration 1\ntenant {}\nvm {vm}\nage_limit_ms {}\nlog_interval_ms {}\nbudget {}\n\
         no_program {no_program}\nbundle_key {key}\n",
        settings.name,
        age_limit_ms(&settings.limit),
        settings.log_interval_ms,
        settings.budget,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn settings() -> TenantSettings {
        let limit = AgeLimit { max_age: Duration::from_millis(500), ..AgeLimit::default() };
        let name = "acme".to_owned();
        TenantSettings { name, limit, log_interval_ms: 100, budget: 262_144, ..TenantSettings::default() }
    }

    /// The same text is in the how-to "Audit".
    #[test]
    fn the_configuration_is_a_text_that_tenants_can_write() {
        let expected = "p4shield configuration 1\ntenant acme\nvm web\nage_limit_ms 500\n\
                        log_interval_ms 100\nbudget 262144\nno_program drop\nbundle_key none\n";
        assert_eq!(text(&settings(), "web", None), expected);
        let how_to = include_str!("../../../../docs/how-to/audit.md");
        assert!(how_to.contains(&expected.replace('\n', "\\n")), "{expected:?} is not in the how-to");
    }

    #[test]
    fn every_deciding_setting_changes_the_configuration() {
        let base = DecidingTerms::of(&settings(), "web", None).configuration;
        let stale = AgeLimit { max_age: Duration::from_millis(501), ..AgeLimit::default() };
        let others = [
            TenantSettings { name: "acme2".to_owned(), ..settings() },
            TenantSettings { limit: stale, ..settings() },
            TenantSettings { log_interval_ms: 101, ..settings() },
            TenantSettings { budget: 4096, ..settings() },
            TenantSettings { passes_without_program: true, ..settings() },
        ];
        for other in &others {
            assert_ne!(DecidingTerms::of(other, "web", None).configuration, base);
        }
        assert_ne!(DecidingTerms::of(&settings(), "web2", None).configuration, base);
    }
}
