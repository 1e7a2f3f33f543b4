//! The demo's claims and their results.

use serde::Serialize;

/// A statement that the demo checks on live traffic.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    /// The statement.
    pub(crate) says: &'static str,
    /// Whether it held.
    pub(crate) held: bool,
    /// The observation that decided it.
    pub(crate) observed: String,
}

impl Claim {
    /// Returns the line that the user sees.
    pub(crate) fn line(&self) -> String {
        let word = if self.held { "held:  " } else { "FAILED:" };
        format!("  {word} {} ({})", self.says, self.observed)
    }
}

/// The claims of a run, in order.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Claims(Vec<Claim>);

impl Claims {
    /// Records a claim.
    pub(crate) fn check(&mut self, says: &'static str, held: bool, observed: impl Into<String>) -> &Claim {
        self.0.push(Claim { says, held, observed: observed.into() });
        &self.0[self.0.len() - 1]
    }

    /// All claims.
    pub(crate) fn all(&self) -> &[Claim] {
        &self.0
    }

    /// Returns whether there are claims and all of them held.
    pub(crate) fn held(&self) -> bool {
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
