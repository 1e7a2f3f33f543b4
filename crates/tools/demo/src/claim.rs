//! The demo's claims and their results.

use serde::Serialize;

/// A statement that the demo checks on live traffic.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// The statement.
    pub says: &'static str,
    /// Whether it held.
    pub held: bool,
    /// The observation that decided it.
    pub observed: String,
}

/// The claims of a run, in order.
#[derive(Debug, Default, Serialize)]
pub struct Claims(Vec<Claim>);

impl Claims {
    /// Records a claim.
    pub fn check(&mut self, says: &'static str, held: bool, observed: impl Into<String>) -> &Claim {
        self.0.push(Claim { says, held, observed: observed.into() });
        &self.0[self.0.len() - 1]
    }

    /// All claims.
    #[must_use]
    pub fn all(&self) -> &[Claim] {
        &self.0
    }

    /// Returns whether there are claims and all of them held.
    #[must_use]
    pub fn held(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|c| c.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_claims_fails() {
        let mut claims = Claims::default();
        assert!(!claims.held());
        claims.check("one", true, "");
        assert!(claims.held());
        claims.check("two", false, "");
        assert!(!claims.held());
    }
}
