//! What a bundle contains, for people and scripts.

use p4shield_abi::Direction;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::contents::{BundledProgram, Contents};
use crate::digest::program_digest;
use crate::key::PublicKey;
use crate::limits::FORMAT;

/// What a bundle contains. Bytes are hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Version of the format.
    pub format: u32,
    /// Whether a pinned key has signed the bundle. If not, a stranger may have made all that follows.
    pub verified: bool,
    /// Number of the key that has signed it.
    pub key: String,
    /// The bundle's version.
    pub version: u64,
    /// The tenant that it is for.
    pub tenant: String,
    /// The VM that it is for; `None`: any VM of the tenant.
    pub vm: Option<String>,
    /// The least number of header bytes that the programs need.
    pub header_bytes: u32,
    /// The program for packets to the VM.
    pub ingress: Option<ProgramSummary>,
    /// The program for packets from the VM.
    pub egress: Option<ProgramSummary>,
    /// The health checks.
    pub checks: Vec<CheckSummary>,
}

/// A program of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramSummary {
    /// The digest by which P4 VM and auditor name it; `None`: its objects do not link.
    pub digest: Option<String>,
    /// Reason why its objects do not link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its objects.
    pub objects: Vec<ObjectSummary>,
    /// Bytes of its P4Info.
    pub p4info_bytes: Option<usize>,
    /// The entries that its tables begin with.
    pub entries: Vec<EntrySummary>,
}

/// An object of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectSummary {
    /// Its length.
    pub bytes: usize,
    /// The SHA-256 digest of the file.
    pub sha256: String,
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntrySummary {
    /// The map's symbol.
    pub map: String,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckSummary {
    /// Its name.
    pub name: String,
    /// Whether the packet is one to the VM (ingress) or from it.
    pub direction: &'static str,
    /// The packet.
    pub packet: String,
    /// The verdict that the program has to give: pass or drop.
    pub expect: &'static str,
    /// The in-VM information, by field; `None`: missing.
    pub information: Option<Vec<(u32, u64)>>,
}

impl Summary {
    pub(crate) fn new(
        contents: &Contents,
        key: &PublicKey,
        verified: bool,
        link: impl Fn(&BundledProgram) -> Result<[u8; 32], String>,
    ) -> Self {
        let [ingress, egress] =
            contents.programs.each_ref().map(|p| p.as_ref().map(|p| ProgramSummary::new(p, link(p))));
        let checks = contents.checks.iter().map(|check| CheckSummary {
            name: check.name.clone(),
            direction: Direction::from_u8(check.direction).map_or("", Direction::name),
            packet: hex::encode(&check.packet),
            expect: if check.passes { "pass" } else { "drop" },
            information: check.information.clone(),
        });
        Self {
            format: FORMAT,
            verified,
            key: key.id().to_string(),
            version: contents.version,
            tenant: contents.tenant.clone(),
            vm: contents.vm.clone(),
            header_bytes: contents.header_bytes,
            ingress,
            egress,
            checks: checks.collect(),
        }
    }

    /// Returns the programs with the names of their directions.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, Option<&ProgramSummary>)> {
        [(Direction::Ingress.name(), self.ingress.as_ref()), (Direction::Egress.name(), self.egress.as_ref())]
            .into_iter()
    }
}

impl ProgramSummary {
    fn new(program: &BundledProgram, linked: Result<[u8; 32], String>) -> Self {
        let object = |bytes: &Vec<u8>| ObjectSummary {
            bytes: bytes.len(),
            sha256: hex::encode(Sha256::digest(bytes)),
        };
        let entries = program.entries.iter().map(|e| EntrySummary {
            map: e.map.clone(),
            key: hex::encode(&e.key),
            value: hex::encode(&e.value),
        });
        let (digest, error) = match linked {
            Ok(linked) => (Some(hex::encode(program_digest(linked, &program.entries))), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            digest,
            error,
            objects: program.objects.iter().map(object).collect(),
            p4info_bytes: program.p4info.as_ref().map(Vec::len),
            entries: entries.collect(),
        }
    }
}
