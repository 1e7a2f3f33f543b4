//! The chain from AMD's root to the key that signed a report.

use sev::certs::snp::builtin;

use super::certificate::Certificate;
use crate::refusal::Refusal;
use crate::tee::UnixSeconds;

/// A line of AMD's products, each with a root of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    Milan,
    Genoa,
    Turin,
}

impl Product {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Milan => "Milan",
            Self::Genoa => "Genoa",
            Self::Turin => "Turin",
        }
    }
}

/// The root of a product, and the authority that issues its VCEKs.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) product: Product,
    pub(crate) root: Certificate,
    pub(crate) authority: Certificate,
}

/// The roots that a verifier trusts. Only [`Roots::of_amd`] makes them, except in the tests of this crate.
#[derive(Clone, Debug)]
pub(crate) struct Roots(Vec<Root>);

/// A chain, whose signatures are not verified yet.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) product: Product,
    pub(crate) root: Certificate,
    pub(crate) authority: Certificate,
    pub(crate) endorsement: Certificate,
}

/// What a refusal calls the root.
const ROOT: &str = "AMD's root";

impl Roots {
    /// Roots whose keys a test has.
    #[cfg(test)]
    pub(crate) fn of_test(root: Root) -> Self {
        Self(vec![root])
    }

    /// The roots of AMD that are part of `sev`, and so of this version.
    pub(crate) fn of_amd() -> Result<Self, Refusal> {
        let products = [
            (Product::Milan, builtin::milan::ARK, builtin::milan::ASK),
            (Product::Genoa, builtin::genoa::ARK, builtin::genoa::ASK),
            (Product::Turin, builtin::turin::ARK, builtin::turin::ASK),
        ];
        let root = |(product, ark, ask)| {
            let root = Certificate::from_file(ark, "ARK")?;
            Ok(Root { product, root, authority: Certificate::from_file(ask, "ASK")? })
        };
        products.into_iter().map(root).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the chain of a VCEK, or of a VLEK with the authority (ASVK) in DER that issued it.
    pub(crate) fn chain(&self, endorsement: Certificate, asvk: Option<&[u8]>) -> Result<Chain, Refusal> {
        let issuer = endorsement.issuer_name();
        if endorsement.certifies("VCEK") {
            let root = self.0.iter().find(|r| r.authority.name() == issuer);
            let Root { product, root, authority } = root.ok_or_else(|| unknown_issuer(&endorsement))?.clone();
            return Ok(Chain { product, root, authority, endorsement });
        }
        let of_product =
            |r: &&Root| endorsement.certifies("VLEK") && issuer == format!("SEV-VLEK-{}", r.product.name());
        let root = self.0.iter().find(of_product).ok_or_else(|| unknown_issuer(&endorsement))?.clone();
        let asvk = asvk.ok_or(Refusal::NoCertificate { key: "VLEK's issuer (ASVK)" })?;
        let authority = Certificate::from_der(asvk, "ASVK")?;
        Ok(Chain { product: root.product, root: root.root, authority, endorsement })
    }
}

fn unknown_issuer(certificate: &Certificate) -> Refusal {
    Refusal::Chain {
        certificate: format!("certificate {:?}", certificate.name()),
        root: ROOT,
        why: format!("its issuer {:?} is none of AMD's for SEV-SNP", certificate.issuer_name()),
    }
}

impl Chain {
    /// Verifies the signatures from the root downwards, and that each certificate is valid now.
    pub(crate) fn verify(&self, now: UnixSeconds) -> Result<(), Refusal> {
        for (issuer, certificate) in [(&self.root, &self.authority), (&self.authority, &self.endorsement)] {
            certificate.verify_issued_by(issuer).map_err(|why| Refusal::Chain {
                certificate: format!("certificate {:?}", certificate.name()),
                root: ROOT,
                why,
            })?;
        }
        [&self.root, &self.authority, &self.endorsement].iter().try_for_each(|c| c.check_validity(now))
    }
}
