//! Measurements against those of independent tools, and firmware that is none.

mod firmware;
mod kernel;
mod snp;
mod tdx;
