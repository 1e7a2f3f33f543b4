//! Comments: what they name exists, and they begin as sentences of an interface do.

use crate::tree;
use std::collections::BTreeSet;
use std::path::Path;

/// Doc comments that begin with What, Whether or Why. The number may only fall: a noun phrase or a verb in
/// the third person says more.
pub(crate) const MAX_QUESTIONS: usize = 664;

/// Identifiers of the kernel, of DPDK, of formats and of other projects, which this code lacks.
const FOREIGN: [&str; 39] = [
    "ControllerPacketMetadata",
    "CounterSpec",
    "E08xx",
    "MatchType",
    "MeterSpec",
    "P4BitstringLikeTypeSpec",
    "P4DataTypeSpec",
    "P4TypeInfo",
    "PkgInfo",
    "Preamble",
    "SocketAddress",
    "StructuredAnnotation",
    "SymmetricState",
    "TableActionCall",
    "bl",
    "checkpoint",
    "cpu_set_t",
    "futex_waitv",
    "hashlittle",
    "ingot",
    "int64_t",
    "net_af_packet",
    "net_null",
    "net_pcap",
    "net_tap",
    "net_vhost",
    "newc",
    "oneof",
    "pnet_packet",
    "rte_errno",
    "rte_eth_dev_cb_fn",
    "rte_rx_callback_fn",
    "sd_notify",
    "smoltcp",
    "sun_path",
    "vfork",
    "xdp_adjust_head",
    "xdp_adjust_tail",
    "Expression",
];

/// The comment of a line, with its slashes; none if the line has none.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.starts_with("//").then_some(line)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// Every word outside comments, of all code and all files that configure something.
fn code_words() -> BTreeSet<String> {
    const ENDINGS: [&str; 11] =
        [".rs", ".c", ".h", ".p4", ".toml", ".sh", ".stf", ".txt", ".lock", ".service", "Makefile"];
    let root = tree::root();
    let mut found = BTreeSet::new();
    for path in ENDINGS.iter().flat_map(|ending| tree::files(&root, ending)) {
        for line in String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).lines() {
            let code = line.split("//").next().unwrap_or_default();
            found.extend(words(code).map(str::to_owned));
        }
    }
    found
}

/// Identifiers between backticks in comments that no code has, as of something that was renamed. Constants of
/// kernel headers, which are in capitals, are left out.
pub(crate) fn unknown_identifiers() -> Vec<String> {
    let known = code_words();
    let is_known = |word: &str| {
        let is_constant = !word.starts_with("P4SHIELD_") && !word.contains(|c: char| c.is_ascii_lowercase());
        is_constant || known.contains(word) || FOREIGN.contains(&word)
    };
    let mut found = Vec::new();
    for path in rust().into_iter().filter(|p| !p.ends_with("rules/comments.rs")) {
        for (n, line) in tree::read(&path).lines().enumerate() {
            let text = comment(line).filter(|c| !c.contains("```"));
            let spans = text.into_iter().flat_map(|c| c.split('`').skip(1).step_by(2));
            let is_path = |span: &&str| {
                let span = span.trim_end_matches("()");
                span.starts_with(|c: char| c.is_alphabetic() || c == '_')
                    && span.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
            };
            let unknown = spans.filter(is_path).flat_map(words).filter(|word| !is_known(word));
            found.extend(unknown.map(|word| format!("{}:{}: {word}", tree::shown(&path), n + 1)));
        }
    }
    found
}

/// Doc comments that begin as questions.
pub(crate) fn questions() -> usize {
    let begins = |line: &&str| {
        let text = comment(line).map(|c| c.trim_start_matches(['/', '!']));
        let first = text.and_then(|text| words(text).next());
        let is_doc = line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
        is_doc && matches!(first, Some("What" | "Whether" | "Why"))
    };
    rust().iter().map(|path| tree::read(path).lines().filter(begins).count()).sum()
}

fn rust() -> Vec<std::path::PathBuf> {
    tree::files(&tree::root().join(Path::new("crates")), ".rs")
}
