//! What of a P4 VM's configuration the agent of a user VM has to agree to.

use sha2::{Digest, Sha256};

use crate::binding::{Binding, NameDigest, PROTOCOL, Subject, joined};
use crate::key::PublicKey;

/// The settings of a P4 VM on which the security of a user VM depends. The host tells the P4 VM, the tenant
/// tells the agent: if they differ, no handshake succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Age from which in-VM information is stale, milliseconds.
    pub age_limit_ms: u32,
    /// Whether packets of a direction without a program pass.
    pub passes_without_program: bool,
    /// The key that the agent must have; none: any agent may have the session.
    pub agent_key: Option<PublicKey>,
}

impl Terms {
    /// Returns the digest of the terms.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let key = self.agent_key.map(|key| key.0);
        let key = key.as_ref().map_or(&[][..], <[u8; 32]>::as_slice);
        let parts = [
            PROTOCOL,
            b"terms",
            &self.age_limit_ms.to_le_bytes(),
            &[u8::from(self.passes_without_program)],
            key,
        ];
        Sha256::digest(joined(&parts)).into()
    }

    /// Returns the binding of a user VM's session under these terms.
    #[must_use]
    pub fn binding(&self, tenant: &str, vm: &str) -> Binding {
        Binding {
            tenant: NameDigest::of(tenant),
            subject: Subject::Vm(NameDigest::of(vm)),
            configuration: self.digest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_changes_the_digest() {
        let base = Terms { age_limit_ms: 500, passes_without_program: true, agent_key: None };
        let all = [
            base,
            Terms { age_limit_ms: 501, ..base },
            Terms { passes_without_program: false, ..base },
            Terms { agent_key: Some(PublicKey([0; 32])), ..base },
            Terms { agent_key: Some(PublicKey([1; 32])), ..base },
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a.digest() != b.digest()), "term {i} is not part of it");
        }
    }
}
