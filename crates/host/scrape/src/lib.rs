//! Metrics for Prometheus: their text ([`Family`], [`text`]) and the server that a scraper asks ([`Server`]).

#![forbid(unsafe_code)]

mod exposition;
mod http;

pub use exposition::{Family, Kind, Labels, text, with};
pub use http::Server;
