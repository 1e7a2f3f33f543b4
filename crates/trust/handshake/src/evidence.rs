//! Who presents evidence, who judges it, and what is known of a peer then.

/// Collects evidence: signed claims of hardware about this party.
pub trait Prover: Send + Sync {
    /// Returns evidence over `report_data`.
    ///
    /// # Errors
    ///
    /// If the hardware or its driver returns none.
    fn evidence(&self, report_data: &[u8; 64]) -> Result<Vec<u8>, ProverError>;
}

/// Judges evidence of a peer against the policy of this party.
pub trait Judge: Send + Sync {
    /// Judges `evidence`, which must be over `report_data`. `unix_s` is the real time, for certificates.
    ///
    /// # Errors
    ///
    /// If the evidence is damaged, is not over `report_data`, or its claims do not match the policy.
    fn judge(&self, evidence: &[u8], report_data: &[u8; 64], unix_s: u64) -> Result<Judgement, JudgeError>;
}

/// The result of judging evidence that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Hardware attests it. The text names the claims, for logs.
    Attested(String),
    /// It is well-formed and proves nothing, such as sample evidence for tests.
    NotAttested,
}

/// No evidence could be collected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProverError(pub String);

/// Reason why a judge refuses evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JudgeError(pub String);

/// What is known of the peer of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub(crate) claims: Option<String>,
    pub(crate) is_pinned: bool,
}

impl Standing {
    /// Whether hardware attests the peer.
    #[must_use]
    pub const fn is_attested(&self) -> bool {
        self.claims.is_some()
    }

    /// Whether the peer has the key that the configuration pins.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// Whether it is known who the peer is. Otherwise the cloud's host may be the peer.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        self.is_attested() || self.is_pinned
    }

    /// Returns the attested claims.
    #[must_use]
    pub fn claims(&self) -> Option<&str> {
        self.claims.as_deref()
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.claims, self.is_pinned) {
            (Some(claims), true) => write!(f, "attested ({claims}), has the pinned key"),
            (Some(claims), false) => write!(f, "attested ({claims})"),
            (None, true) => f.write_str("not attested, has the pinned key"),
            (None, false) => f.write_str("not attested: the cloud's host may be the peer"),
        }
    }
}
