//! A report of SEV-SNP with a certificate; a table of certificates; a revocation list.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| p4shield_attest::fuzz::snp(bytes));
