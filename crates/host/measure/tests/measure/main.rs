//! Measurements against those of independent tools, and firmware that is none.

mod firmware;
mod snp;
mod tdx;
