//! The control protocol: a P4 VM executes what the daemon and the P4 switch send, and nothing else that a
//! host could send.

use super::tree;

/// Returns the requests of the protocol that neither sends, and how many there are.
pub(crate) fn unsent() -> (Vec<String>, usize) {
    let root = tree::root();
    let messages = tree::read(&root.join("crates/base/control/src/message.rs"));
    let requests = variants(&messages);
    let hosts =
        ["daemon", "p4switch"].map(|c| tree::files(&root.join("crates/host").join(c).join("src"), ".rs"));
    let sent: String = hosts
        .iter()
        .flatten()
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| tree::read(path))
        .collect();
    let is_sent = |request: &&String| {
        let name = format!("Request::{request}");
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
        sent.split(&name).skip(1).any(ends)
    };
    let unsent = requests.iter().filter(|request| !is_sent(request)).cloned().collect();
    (unsent, requests.len())
}

/// Returns the names of the variants of `Request`.
fn variants(messages: &str) -> Vec<String> {
    let (_, body) = messages.split_once("pub enum Request {\n").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    body.lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect())
        .collect()
}
