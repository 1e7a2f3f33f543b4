//! Defects that tests put back, to show that they would be found. The product contains none of them.

/// A defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hole {
    /// No defect.
    #[default]
    None,
    /// Any evidence counts as attested.
    EvidenceUnjudged,
    /// A peer without evidence passes although it is required.
    EvidenceOptional,
    /// Evidence is not bound to the exchange of keys.
    ChannelUnbound,
    /// Evidence is bound neither to the role nor to the key of its sender.
    RoleUnbound,
    /// Tenant, VM and configuration are no part of what is agreed.
    IdentityUnbound,
    /// The pinned key is not compared.
    PinIgnored,
    /// A party without verification is accepted although its peer did not agree to that.
    UnverifiedByOne,
    /// The initiator uses the keys before the responder has confirmed them.
    EarlyRelease,
    /// Each party takes the epoch that it proposed.
    OwnEpoch,
    /// The keys do not depend on what both parties chose at random.
    ConstantSecret,
}

impl Hole {
    /// All defects.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 10] = [
        Self::EvidenceUnjudged,
        Self::EvidenceOptional,
        Self::ChannelUnbound,
        Self::RoleUnbound,
        Self::IdentityUnbound,
        Self::PinIgnored,
        Self::UnverifiedByOne,
        Self::EarlyRelease,
        Self::OwnEpoch,
        Self::ConstantSecret,
    ];

    /// Whether this defect is put back: never outside of tests.
    pub(crate) fn is(self, other: Self) -> bool {
        cfg!(test) && self == other
    }
}
