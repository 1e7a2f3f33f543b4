//! Policies: what a verifier demands of a machine.
//!
//! A policy is a TOML file, checked as a whole: `file` is its structure, [`Policy::parse`] checks the values,
//! and `explain` says in plain words what the policy demands. Docs: `docs/reference/attestation-policy.md`.

mod check;
mod error;
mod explain;
mod file;

use std::path::{Path, PathBuf};

use dcap_qvl::TcbStatus;

use crate::tee::Tee;

pub use error::{PolicyError, Problem};
pub use explain::{Statement, Weight};

/// Most bytes of a policy file.
pub const MAX_POLICY: usize = 256 << 10;

/// A list of accepted values. `None`: any value is accepted.
pub(crate) type Accepted<const N: usize> = Option<Vec<[u8; N]>>;

/// What a verifier demands of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) sample: bool,
    pub(crate) sev_snp: Option<SevSnpPolicy>,
    pub(crate) tdx: Option<TdxPolicy>,
}

/// What a verifier demands of an SEV-SNP machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SevSnpPolicy {
    pub(crate) measurements: Accepted<48>,
    pub(crate) host_data: Accepted<32>,
    pub(crate) id_key_digests: Accepted<48>,
    pub(crate) author_key_digests: Accepted<48>,
    pub(crate) family_ids: Accepted<16>,
    pub(crate) image_ids: Accepted<16>,
    pub(crate) minimum_tcb: MinimumTcb,
    /// Major, minor and build number.
    pub(crate) minimum_firmware: [u8; 3],
    pub(crate) minimum_guest_svn: u32,
    pub(crate) highest_vmpl: u32,
    pub(crate) debug: bool,
    pub(crate) migration_agent: bool,
    pub(crate) smt: bool,
    pub(crate) vlek: bool,
    /// `None`: revocation is not checked.
    pub(crate) crl: Option<Vec<PathBuf>>,
    pub(crate) endorsements: Vec<PathBuf>,
}

/// Minimum security versions of an SEV-SNP host's firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MinimumTcb {
    pub(crate) bootloader: u8,
    pub(crate) tee: u8,
    pub(crate) snp: u8,
    pub(crate) microcode: u8,
    /// Applies to Turin and later.
    pub(crate) fmc: u8,
}

/// What a verifier demands of a TDX machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TdxPolicy {
    pub(crate) mrtd: Accepted<48>,
    pub(crate) rtmr: [Accepted<48>; 4],
    pub(crate) mr_config_id: Accepted<48>,
    pub(crate) mr_owner: Accepted<48>,
    pub(crate) mr_owner_config: Accepted<48>,
    pub(crate) tcb_statuses: Vec<TcbStatus>,
    pub(crate) minimum_tee_tcb_svn: [u8; 16],
    pub(crate) minimum_tcb_evaluation: u32,
    pub(crate) debug: bool,
    pub(crate) collateral: Vec<PathBuf>,
}

impl Policy {
    /// Reads and checks a policy file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is refused.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks the text of a policy file at `path`, to whose folder relative paths in it refer. Reads no file.
    /// Entry point of fuzzing.
    ///
    /// # Errors
    ///
    /// The text is refused.
    pub fn parse(path: &Path, text: &str) -> Result<Self, PolicyError> {
        let refused = |problems| PolicyError::Refused { file: path.to_owned(), problems };
        if text.len() > MAX_POLICY {
            let message = format!("the file has more than {MAX_POLICY} bytes");
            return Err(refused(vec![Problem { line: 1, column: 1, message }]));
        }
        let file: file::File = toml::from_str(text).map_err(|e| refused(vec![Problem::syntax(text, &e)]))?;
        check::check(path, text, &file).map_err(refused)
    }

    /// Returns the kinds of TEE that the policy accepts; a sample is none of them.
    #[must_use]
    pub fn tees(&self) -> Vec<Tee> {
        let named = [(Tee::SevSnp, self.sev_snp.is_some()), (Tee::Tdx, self.tdx.is_some())];
        named.into_iter().filter_map(|(tee, accepted)| accepted.then_some(tee)).collect()
    }

    /// Returns whether the policy accepts machines without a TEE, whose outcome is "not attested".
    #[must_use]
    pub const fn accepts_samples(&self) -> bool {
        self.sample
    }
}

#[cfg(test)]
mod tests;
