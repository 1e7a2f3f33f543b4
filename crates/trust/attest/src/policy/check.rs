//! Checks of a policy's values.

use std::ops::Range;
use std::path::{Path, PathBuf};

use dcap_qvl::TcbStatus;
use toml::Spanned;

use super::error::Problem;
use super::file::{self, Text};
use super::{Accepted, MinimumTcb, Policy, SevSnpPolicy, TdxPolicy};
use crate::tee::from_hex;

/// TCB statuses that a policy may accept. "Revoked" is none: the verifier refuses it always.
const STATUSES: [TcbStatus; 8] = [
    TcbStatus::UpToDate,
    TcbStatus::SWHardeningNeeded,
    TcbStatus::ConfigurationNeeded,
    TcbStatus::ConfigurationAndSWHardeningNeeded,
    TcbStatus::OutOfDate,
    TcbStatus::OutOfDateConfigurationNeeded,
    TcbStatus::TDRelaunchAdvised,
    TcbStatus::TDRelaunchAdvisedConfigurationNeeded,
];

struct Checker<'a> {
    text: &'a str,
    folder: &'a Path,
    problems: Vec<Problem>,
}

pub(super) fn check(path: &Path, text: &str, file: &file::File) -> Result<Policy, Vec<Problem>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut c = Checker { text, folder, problems: Vec::new() };
    let sev_snp = file.sev_snp.as_ref().map(|s| c.sev_snp(s));
    let tdx = file.tdx.as_ref().map(|t| c.tdx(t));
    if sev_snp.is_none() && tdx.is_none() && !file.sample {
        let message = "the policy accepts no machine: write a table [sev-snp] or [tdx]; sample = true \
                       accepts machines without a TEE, as \"not attested\"";
        c.problem(0..0, message.to_owned());
    }
    c.problems.sort_by_key(|p| (p.line, p.column));
    if c.problems.is_empty() { Ok(Policy { sample: file.sample, sev_snp, tdx }) } else { Err(c.problems) }
}

impl Checker<'_> {
    fn problem(&mut self, span: Range<usize>, message: String) {
        self.problems.push(Problem::at(self.text, span, message));
    }

    fn hex<const N: usize>(&mut self, key: &str, value: &Text) -> [u8; N] {
        from_hex(value.as_ref()).unwrap_or_else(|| {
            let message =
                format!("{key}: {:?} is not {N} bytes; write {} hexadecimal digits", value.as_ref(), 2 * N);
            self.problem(value.span(), message);
            [0; N]
        })
    }

    fn list<const N: usize>(&mut self, key: &str, values: &[Text]) -> Vec<[u8; N]> {
        values.iter().map(|v| self.hex(key, v)).collect()
    }

    /// Checks a list that may be absent. An empty list would accept no machine.
    fn optional<const N: usize>(
        &mut self,
        key: &str,
        values: Option<&Vec<Text>>,
        table: &Range<usize>,
    ) -> Accepted<N> {
        let values = values?;
        if values.is_empty() {
            let message =
                format!("{key}: the list is empty, so no machine is accepted; remove the key to accept any");
            self.problem(table.clone(), message);
        }
        Some(self.list(key, values))
    }

    /// Checks a list that must be there unless `any` says that every value is accepted.
    fn listed_or_any<const N: usize>(
        &mut self,
        (key, values): (&str, &[Text]),
        (any_key, any): (&str, bool),
        table: &Range<usize>,
    ) -> Accepted<N> {
        match (values.is_empty(), any) {
            (true, false) => {
                let message = format!(
                    "{key}: the list is missing or empty; write the measurements of your images, or \
                     {any_key} = true"
                );
                self.problem(table.clone(), message);
            }
            (false, true) => {
                let message = format!("{any_key}: {key} lists measurements, too; remove one of the two keys");
                self.problem(table.clone(), message);
            }
            _ => {}
        }
        (!any).then(|| self.list(key, values))
    }

    fn paths(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        paths.iter().map(|p| self.folder.join(p)).collect()
    }

    fn sev_snp(&mut self, table: &Spanned<file::SevSnp>) -> SevSnpPolicy {
        let (span, t) = (table.span(), table.as_ref());
        match (t.crl.is_empty(), t.unchecked_revocation) {
            (true, false) => self.problem(
                span.clone(),
                "sev-snp.crl: the list is missing; name the revocation lists of AMD's roots, or write \
                 unchecked_revocation = true"
                    .to_owned(),
            ),
            (false, true) => self.problem(
                span.clone(),
                "sev-snp.unchecked_revocation: crl names revocation lists, too; remove one of the two keys"
                    .to_owned(),
            ),
            _ => {}
        }
        let tcb = t.minimum_tcb.as_ref().map(|tcb| MinimumTcb {
            bootloader: tcb.bootloader,
            tee: tcb.tee,
            snp: tcb.snp,
            microcode: tcb.microcode,
            fmc: tcb.fmc.unwrap_or(0),
        });
        SevSnpPolicy {
            measurements: self.listed_or_any(
                ("sev-snp.measurements", &t.measurements),
                ("sev-snp.any_measurement", t.any_measurement),
                &span,
            ),
            host_data: self.optional("sev-snp.host_data", t.host_data.as_ref(), &span),
            id_key_digests: self.optional("sev-snp.id_key_digests", t.id_key_digests.as_ref(), &span),
            author_key_digests: self.optional(
                "sev-snp.author_key_digests",
                t.author_key_digests.as_ref(),
                &span,
            ),
            family_ids: self.optional("sev-snp.family_ids", t.family_ids.as_ref(), &span),
            image_ids: self.optional("sev-snp.image_ids", t.image_ids.as_ref(), &span),
            minimum_tcb: tcb.unwrap_or_default(),
            minimum_firmware: t.minimum_firmware.as_ref().map_or([0; 3], |v| self.firmware(v)),
            minimum_guest_svn: t.minimum_guest_svn,
            highest_vmpl: t.highest_vmpl,
            debug: t.debug,
            migration_agent: t.migration_agent,
            smt: t.smt,
            vlek: t.vlek,
            crl: (!t.unchecked_revocation).then(|| self.paths(&t.crl)),
            endorsements: self.paths(&t.endorsements),
        }
    }

    fn firmware(&mut self, value: &Text) -> [u8; 3] {
        let mut parts = value.as_ref().split('.').map(|part| part.parse().ok());
        let version = [parts.next(), parts.next(), parts.next()].map(Option::flatten);
        match (version, parts.next()) {
            ([Some(major), Some(minor), Some(build)], None) => [major, minor, build],
            _ => {
                let message = format!(
                    "sev-snp.minimum_firmware: {:?} is not a version; write major, minor and build, such as \
                     1.55.22",
                    value.as_ref()
                );
                self.problem(value.span(), message);
                [0; 3]
            }
        }
    }

    fn tdx(&mut self, table: &Spanned<file::Tdx>) -> TdxPolicy {
        let (span, t) = (table.span(), table.as_ref());
        if t.collateral.is_empty() {
            let message =
                "tdx.collateral: the list is missing; name the files with Intel's collateral of your hosts";
            self.problem(span.clone(), message.to_owned());
        }
        TdxPolicy {
            mrtd: self.listed_or_any(("tdx.mrtd", &t.mrtd), ("tdx.any_mrtd", t.any_mrtd), &span),
            rtmr: [
                self.optional("tdx.rtmr0", t.rtmr0.as_ref(), &span),
                self.optional("tdx.rtmr1", t.rtmr1.as_ref(), &span),
                self.optional("tdx.rtmr2", t.rtmr2.as_ref(), &span),
                self.optional("tdx.rtmr3", t.rtmr3.as_ref(), &span),
            ],
            mr_config_id: self.optional("tdx.mr_config_id", t.mr_config_id.as_ref(), &span),
            mr_owner: self.optional("tdx.mr_owner", t.mr_owner.as_ref(), &span),
            mr_owner_config: self.optional("tdx.mr_owner_config", t.mr_owner_config.as_ref(), &span),
            tcb_statuses: t
                .tcb_statuses
                .as_ref()
                .map_or(vec![TcbStatus::UpToDate], |values| self.statuses(values, &span)),
            minimum_tee_tcb_svn: t
                .minimum_tee_tcb_svn
                .as_ref()
                .map_or([0; 16], |v| self.hex("tdx.minimum_tee_tcb_svn", v)),
            minimum_tcb_evaluation: t.minimum_tcb_evaluation,
            debug: t.debug,
            collateral: self.paths(&t.collateral),
        }
    }

    fn statuses(&mut self, values: &[Text], table: &Range<usize>) -> Vec<TcbStatus> {
        let mut statuses = Vec::new();
        if values.is_empty() {
            let message =
                "tdx.tcb_statuses: the list is empty, so no machine is accepted; write \"UpToDate\"";
            self.problem(table.clone(), message.to_owned());
        }
        for value in values {
            match STATUSES.iter().find(|s| s.to_string() == *value.as_ref()) {
                Some(status) => statuses.push(*status),
                None => {
                    let choices: Vec<_> = STATUSES.iter().map(ToString::to_string).collect();
                    let message = format!(
                        "tdx.tcb_statuses: {:?} is not a status that can be accepted; write one or more of \
                         {}",
                        value.as_ref(),
                        choices.join(", ")
                    );
                    self.problem(value.span(), message);
                }
            }
        }
        statuses
    }
}
