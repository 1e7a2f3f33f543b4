//! The structure of a manifest. Values keep their position.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// Text with its position.
pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) version: Spanned<u64>,
    pub(super) tenant: Text,
    pub(super) vm: Option<Text>,
    pub(super) header_bytes: Option<Spanned<u32>>,
    pub(super) ingress: Option<Spanned<Program>>,
    pub(super) egress: Option<Spanned<Program>>,
    #[serde(default)]
    pub(super) check: Vec<Spanned<Check>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub(super) objects: Vec<Spanned<PathBuf>>,
    pub(super) p4info: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) entry: Vec<Spanned<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) map: Text,
    pub(super) key: Text,
    pub(super) value: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    pub(super) name: Text,
    pub(super) direction: Text,
    pub(super) packet: Text,
    pub(super) expect: Text,
    pub(super) information: Option<Vec<Spanned<Field>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    pub(super) field: u32,
    pub(super) value: u64,
}
