//! The verifier on genuine evidence, and on evidence of a test's own hierarchies of certificates.
//!
//! The roots of those hierarchies are in no build but this one: `Roots` and `TdxRoot` have no public
//! constructor, and the only one outside of tests returns the manufacturers' roots.

mod amd;
mod campaign;
mod exchange;
mod flips;
mod genuine;
mod hierarchy;
mod intel;
mod snp;
mod tdx;
