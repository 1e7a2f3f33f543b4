//! The NIC switch between network namespaces: real interfaces and raw frames.

mod agreement;
mod attacks;
mod bed;
mod bridge;
mod checksums;
mod crash;
mod extent;
mod frames;
mod life;
mod oracle;
mod paths;
mod rate;
mod raw;
mod segments;
mod traffic_control;
