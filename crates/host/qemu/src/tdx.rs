//! Trust domains: QEMU's object `tdx-guest`.

use crate::error::OptionsError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The settings of a trust domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TdxGuest {
    /// The host's Quote Generation Service. Without it the machine starts and cannot prove what it is.
    pub quotes: Option<QuoteService>,
    /// 48 bytes that each report of the machine contains (`MRCONFIGID`).
    pub config_id: Option<[u8; 48]>,
}

/// Where the host's Quote Generation Service (QGS) of Intel listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuoteService {
    /// A Unix socket: `/var/run/tdx-qgs/qgs.socket` by default.
    Unix(PathBuf),
    /// A vsock: CID 2 is the host, 4050 the port that Intel's package configures.
    Vsock {
        /// The context identifier.
        cid: u32,
        /// The port.
        port: u32,
    },
}

impl Default for QuoteService {
    /// Returns where Intel's package has it.
    fn default() -> Self {
        Self::Vsock { cid: 2, port: 4050 }
    }
}

impl fmt::Display for QuoteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
        }
    }
}

/// A text that is no quote service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no quote service; write vsock:CID:PORT, such as vsock:2:4050, or unix:/PATH")]
pub struct NoQuoteService(pub String);

impl FromStr for QuoteService {
    type Err = NoQuoteService;

    fn from_str(text: &str) -> Result<Self, NoQuoteService> {
        let vsock = |text: &str| {
            let (cid, port) = text.split_once(':')?;
            Some(Self::Vsock { cid: cid.parse().ok()?, port: port.parse().ok()? })
        };
        let unix = |path: &str| path.starts_with('/').then(|| Self::Unix(path.into()));
        let found = match text.split_once(':') {
            Some(("vsock", rest)) => vsock(rest),
            Some(("unix", path)) => unix(path),
            _ => None,
        };
        found.ok_or_else(|| NoQuoteService(text.to_owned()))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object<'a> {
    qom_type: &'a str,
    id: &'a str,
    sept_ve_disable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mrconfigid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quote_generation_socket: Option<Socket<'a>>,
}

/// QEMU's `SocketAddress`. Numbers of a vsock are text.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Socket<'a> {
    Unix { path: &'a str },
    Vsock { cid: String, port: String },
}

impl TdxGuest {
    /// Returns the value of `-object`, as JSON: the socket is an object within it.
    pub(crate) fn object(&self, id: &str) -> Result<String, OptionsError> {
        let socket = match &self.quotes {
            None => None,
            Some(QuoteService::Unix(path)) => {
                let text = path.to_str().ok_or_else(|| OptionsError::Path(path.clone()))?;
                Some(Socket::Unix { path: text })
            }
            Some(QuoteService::Vsock { cid, port }) => {
                Some(Socket::Vsock { cid: cid.to_string(), port: port.to_string() })
            }
        };
        let object = Object {
            qom_type: "tdx-guest",
            id,
            // Linux refuses to boot without it.
            sept_ve_disable: true,
            mrconfigid: self.config_id.map(|id| STANDARD.encode(id)),
            quote_generation_socket: socket,
        };
        Ok(serde_json::to_string(&object).expect("texts and flags are JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_services_are_read_back() {
        for text in ["vsock:2:4050", "unix:/var/run/tdx-qgs/qgs.socket"] {
            assert_eq!(text.parse::<QuoteService>().unwrap().to_string(), text);
        }
        for text in ["", "vsock", "vsock:2", "vsock:-1:4050", "vsock:2:4050:1", "unix:qgs.socket", "tcp:1:2"]
        {
            assert!(text.parse::<QuoteService>().unwrap_err().to_string().contains("vsock:2:4050"), "{text}");
        }
    }
}
