//! A quote in its only encoding.
//!
//! `dcap-qvl` reads the fields of a quote and passes over what is between and behind them. Whatever no
//! signature and no comparison covers is refused here, so that no byte of accepted evidence can be another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dcap_qvl::intel;
use dcap_qvl::quote::{AuthData, Quote as DcapQuote, TDReport10};
use parity_scale_codec::Encode;
use x509_cert::Certificate as X509;
use x509_cert::der::Decode;

use crate::refusal::Refusal;

/// Type of certification data: a report of the quoting enclave, with more certification data.
const QE_REPORT: u16 = 6;
/// Type of certification data: a chain of certificates in PEM.
const CHAIN: u16 = 5;
/// Certificates of a chain: the platform's, its issuer's, the root.
const CERTIFICATES: usize = 3;

/// A quote whose signatures are not verified yet.
#[derive(Debug)]
pub(super) struct Quote<'a> {
    quote: DcapQuote,
    bytes: &'a [u8],
}

impl<'a> Quote<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let quote = DcapQuote::parse(bytes)
            .map_err(|e| Refusal::malformed(format!("the report is no quote of TDX: {e:#}")))?;
        let again = quote.encode();
        // The hardware pads the buffer of a quote with zeros.
        let padding = bytes.strip_prefix(again.as_slice());
        if !padding.is_some_and(|padding| padding.iter().all(|b| *b == 0)) {
            return Err(Refusal::malformed("the quote has bytes that nothing reads"));
        }
        Ok(Self { quote, bytes })
    }

    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the TD's report; `None`: the quote is of an SGX enclave.
    pub(super) fn td_report(&self) -> Option<&TDReport10> {
        self.quote.report.as_td10()
    }

    /// Returns the family, model and stepping of the platform.
    pub(super) fn fmspc(&self) -> Result<[u8; 6], Refusal> {
        intel::quote_fmspc(&self.quote)
            .map_err(|e| Refusal::malformed(format!("the quote names no platform: {e:#}")))
    }

    /// Returns the certificates of platform, issuer and root. The root is the trusted one.
    pub(super) fn certificates(&self, root: &[u8]) -> Result<[X509; CERTIFICATES], Refusal> {
        let outer = match &self.quote.auth_data {
            AuthData::V4(data) => data.certification_data.cert_type,
            AuthData::V3(_) => 0,
        };
        if outer != QE_REPORT || self.quote.inner_cert_type() != CHAIN {
            return Err(Refusal::malformed("the quote does not carry the chain of its certificates"));
        }
        let chain = intel::extract_cert_chain(&self.quote)
            .map_err(|e| Refusal::malformed(format!("the quote's certificates: {e:#}")))?;
        if !is_pem_of(self.quote.inner_cert_data(), &chain) {
            return Err(Refusal::malformed("the quote's certificates have bytes that nothing reads"));
        }
        if chain.len() != CERTIFICATES || chain.last().is_none_or(|last| last != root) {
            return Err(Refusal::Chain {
                certificate: "certificate of the platform".to_owned(),
                root: "Intel's root",
                why: "the quote's chain ends elsewhere".to_owned(),
            });
        }
        let parse = |der: &Vec<u8>| X509::from_der(der);
        let parsed: Result<Vec<_>, _> = chain.iter().map(parse).collect();
        let parsed = parsed.map_err(|e| Refusal::malformed(format!("the quote's certificates: {e}")))?;
        parsed.try_into().map_err(|_| Refusal::malformed("the quote has not three certificates"))
    }
}

/// Returns whether a text consists of these certificates in PEM, apart from the ends of lines and a
/// terminating zero.
fn is_pem_of(text: &[u8], certificates: &[Vec<u8>]) -> bool {
    let mut expected = Vec::with_capacity(text.len());
    for der in certificates {
        expected.extend_from_slice(b"-----BEGIN CERTIFICATE-----");
        expected.extend_from_slice(STANDARD.encode(der).as_bytes());
        expected.extend_from_slice(b"-----END CERTIFICATE-----");
    }
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    text.iter().filter(|b| !matches!(b, b'\r' | b'\n')).eq(&expected)
}
