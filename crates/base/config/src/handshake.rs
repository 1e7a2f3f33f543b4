//! VMs whose keys come from handshakes between their agent and the P4 VM.

use super::check::Checker;
use super::{Placement, Tee, file};
use std::path::PathBuf;

/// How a VM's agent and its P4 VM agree on keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The page through which they do.
    pub page: PathBuf,
    /// The public key (X25519) that the agent must have; `None`: any agent.
    pub agent_key: Option<[u8; 32]>,
    /// Whether the P4 VM has no evidence, so that its host may be the agent's peer.
    pub is_sample: bool,
}

/// Where a VM's key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeySource {
    File,
    Handshake,
}

impl Checker<'_> {
    /// Checks how a VM agrees on keys; `None` if its key is a file.
    pub(super) fn handshake(
        &mut self,
        v: &file::Vm,
        t: &file::Tenant,
        (tee, placement): (Tee, Placement),
    ) -> Option<Handshake> {
        let is_sample = self.is_sample(t);
        let words = [("file", KeySource::File), ("handshake", KeySource::Handshake)];
        if self.word("key", v.key.as_ref(), &words) == KeySource::File {
            self.no_handshake(v);
            return None;
        }
        let span = v.key.as_ref().map_or_else(|| v.name.span(), toml::Spanned::span);
        let refusal = if placement == Placement::Inline {
            Some("programs in a switch (placement = \"inline\") have no P4 VM to agree on keys; set key_file")
        } else if v.key_file.is_some() {
            Some("the VM has a key_file as well; remove one of them")
        } else if v.handshake_page.is_none() {
            Some("the handshake needs a page; write handshake_page = \"/run/p4shield/NAME.handshake\"")
        } else if v.info_page.is_none() {
            Some("the agent's first information confirms a session; write info_page, too")
        } else if v.agent_key.is_none() {
            Some(
                "the P4 VM must know the agent; write agent_key = \"KEY\" with what `p4shield key public` \
                 prints for the agent's key, or agent_key = \"any\" to accept any agent",
            )
        } else if tee == Tee::None && !is_sample {
            Some(
                "without a TEE the P4 VM has no evidence; write evidence = \"sample\" for the tenant, whose \
                 status then says \"not attested\", or set tee",
            )
        } else if tee != Tee::None && is_sample {
            Some("evidence = \"sample\" is for P4 VMs without a TEE; remove it")
        } else {
            None
        };
        if let Some(why) = refusal {
            self.problem(span, format!("key = \"handshake\": {why}"));
            return None;
        }
        let page = v.handshake_page.as_ref().map(|page| self.place(page))?;
        let agent_key = self.agent_key(v.agent_key.as_ref()?);
        Some(Handshake { page, agent_key, is_sample })
    }

    /// Reports keys that only handshakes have.
    fn no_handshake(&mut self, v: &file::Vm) {
        let keys = [
            ("handshake_page", v.handshake_page.as_ref().map(toml::Spanned::span)),
            ("agent_key", v.agent_key.as_ref().map(toml::Spanned::span)),
        ];
        for (name, span) in keys {
            if let Some(span) = span {
                self.problem(span, format!("{name} needs key = \"handshake\"; write that, or remove {name}"));
            }
        }
    }

    fn is_sample(&mut self, t: &file::Tenant) -> bool {
        self.word("evidence", t.evidence.as_ref(), &[("tee", false), ("sample", true)])
    }

    fn agent_key(&mut self, text: &file::Text) -> Option<[u8; 32]> {
        if text.as_ref() == "any" {
            return None;
        }
        let key = parse_key(text.as_ref());
        if key.is_none() {
            let message = "agent_key: a public key has 64 hexadecimal digits; write what `p4shield key \
                           public` prints, or \"any\"";
            self.problem(text.span(), message.to_owned());
        }
        key
    }
}

/// Parses 64 hexadecimal digits.
fn parse_key(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut key = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use std::path::Path;

    fn file(tenant: &str, vm: &str) -> String {
        format!(
            "attachment = \"dpdk\"\n[[tenant]]\nname = \"alice\"\n{tenant}\n[[tenant.vm]]\nname = \"web\"\n\
             addresses = [\"10.0.0.2\"]\n{vm}\n"
        )
    }

    fn refusals(tenant: &str, vm: &str) -> String {
        match Config::parse(Path::new("x.toml"), &file(tenant, vm)) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    const VM: &str = "key = \"handshake\"\nhandshake_page = \"h\"\ninfo_page = \"i\"\nagent_key = \"any\"";

    #[test]
    fn a_vm_agrees_on_its_keys_with_its_agent() {
        let key = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
        let vm = VM.replace("any", &key);
        let text = file("key_file = \"a.key\"\nevidence = \"sample\"", &vm);
        let config = Config::parse(Path::new("/x.toml"), &text).unwrap();
        let tenant = &config.tenants[0];
        let handshake = tenant.vms[0].handshake.as_ref().unwrap();
        assert_eq!(handshake.page, Path::new("/h"));
        assert_eq!(handshake.agent_key.unwrap()[..4], [0x01, 0x23, 0x45, 0x67]);
        assert!(handshake.is_sample);
        assert_eq!(tenant.key_file_of(&tenant.vms[0]), None, "the tenant's file is for other VMs");
    }

    #[test]
    fn incomplete_handshakes_are_refused_with_the_remedy() {
        let sample = "evidence = \"sample\"";
        assert_eq!(refusals(sample, VM), "");
        for (tenant, vm, why) in [
            ("", VM.to_owned(), "write evidence = \"sample\""),
            (sample, VM.replace("handshake_page = \"h\"", ""), "write handshake_page"),
            (sample, VM.replace("info_page = \"i\"", ""), "write info_page, too"),
            (sample, VM.replace("agent_key = \"any\"", ""), "p4shield key public"),
            (sample, VM.replace("any", "12"), "64 hexadecimal digits"),
            (sample, VM.to_owned() + "\nkey_file = \"w.key\"", "remove one of them"),
            (sample, VM.replace("\"i\"", "\"h\""), "page: h is in line"),
            ("", "handshake_page = \"h\"".to_owned(), "needs key = \"handshake\""),
            ("compartment = \"vm\"\ntee = \"tdx\"\nevidence = \"sample\"", VM.to_owned(), "remove it"),
        ] {
            let found = refusals(tenant, &vm);
            assert!(found.contains(why), "{why}: {found}");
        }
    }
}
