//! The structure of a policy file. Values keep their position.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// Text with its position.
pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) sample: bool,
    #[serde(rename = "sev-snp")]
    pub(super) sev_snp: Option<Spanned<SevSnp>>,
    pub(super) tdx: Option<Spanned<Tdx>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SevSnp {
    #[serde(default)]
    pub(super) measurements: Vec<Text>,
    #[serde(default)]
    pub(super) any_measurement: bool,
    pub(super) host_data: Option<Vec<Text>>,
    pub(super) id_key_digests: Option<Vec<Text>>,
    pub(super) author_key_digests: Option<Vec<Text>>,
    pub(super) family_ids: Option<Vec<Text>>,
    pub(super) image_ids: Option<Vec<Text>>,
    pub(super) minimum_tcb: Option<Tcb>,
    pub(super) minimum_firmware: Option<Text>,
    #[serde(default)]
    pub(super) minimum_guest_svn: u32,
    #[serde(default)]
    pub(super) highest_vmpl: u32,
    #[serde(default)]
    pub(super) debug: bool,
    #[serde(default)]
    pub(super) migration_agent: bool,
    #[serde(default = "yes")]
    pub(super) smt: bool,
    #[serde(default)]
    pub(super) vlek: bool,
    #[serde(default)]
    pub(super) crl: Vec<PathBuf>,
    #[serde(default)]
    pub(super) unchecked_revocation: bool,
    #[serde(default)]
    pub(super) endorsements: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tcb {
    pub(super) bootloader: u8,
    pub(super) tee: u8,
    pub(super) snp: u8,
    pub(super) microcode: u8,
    pub(super) fmc: Option<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tdx {
    #[serde(default)]
    pub(super) mrtd: Vec<Text>,
    #[serde(default)]
    pub(super) any_mrtd: bool,
    pub(super) rtmr0: Option<Vec<Text>>,
    pub(super) rtmr1: Option<Vec<Text>>,
    pub(super) rtmr2: Option<Vec<Text>>,
    pub(super) rtmr3: Option<Vec<Text>>,
    pub(super) mr_config_id: Option<Vec<Text>>,
    pub(super) mr_owner: Option<Vec<Text>>,
    pub(super) mr_owner_config: Option<Vec<Text>>,
    pub(super) tcb_statuses: Option<Vec<Text>>,
    pub(super) minimum_tee_tcb_svn: Option<Text>,
    #[serde(default)]
    pub(super) minimum_tcb_evaluation: u32,
    #[serde(default)]
    pub(super) debug: bool,
    #[serde(default)]
    pub(super) collateral: Vec<PathBuf>,
}

const fn yes() -> bool {
    true
}
