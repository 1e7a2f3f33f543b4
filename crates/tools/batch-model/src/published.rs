//! The paper's table, as its authors published it with the repository `manuel-simon/netsoft25-results`.

use crate::model::Costs;
use serde::Serialize;

/// A row of the paper's table: 1500-byte packets through T4P4S on one core.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    /// Its processor: Intel Xeon Gold 6421N or 6312U, AMD EPYC 9354 or 7543.
    pub processor: &'static str,
    /// Its placement: `bare`, `VM`, `SEV-SNP` (the pipeline in a virtual machine) or `SGX` (an extern).
    pub placement: &'static str,
    /// Its driver: `ICE` (DPDK polls the device) or `XDP` (AF_XDP in copy mode).
    pub driver: &'static str,
    /// Its costs.
    pub costs: Costs,
    /// The most million packets a second that were measured.
    pub measured: f64,
    /// Those that follow from the costs (`r'max`).
    pub modelled: f64,
}

const fn row(
    [processor, placement, driver]: [&'static str; 3],
    [a_io, b_io, a_p, b_p]: [f64; 4],
    [measured, modelled]: [f64; 2],
) -> Published {
    let costs = Costs { a_io, b_io, a_p, b_p };
    Published { processor, placement, driver, costs, measured, modelled }
}

/// The rows, in the order of the table.
pub const PUBLISHED: [Published; 18] = [
    row(["9354", "bare", "XDP"], [3.008, 1.420, -0.063, 0.400], [0.52, 0.52]),
    row(["9354", "bare", "ICE"], [-0.011, 0.010, 0.072, 0.441], [2.06, 2.21]),
    row(["9354", "SEV-SNP", "XDP"], [10.193, 1.539, -0.080, 0.408], [0.44, 0.44]),
    row(["9354", "VM", "XDP"], [6.137, 1.200, -0.108, 0.406], [0.55, 0.56]),
    row(["9354", "VM", "ICE"], [-0.001, 0.011, -0.024, 0.438], [2.06, 2.23]),
    row(["7543", "bare", "XDP"], [2.727, 1.842, -0.100, 0.424], [0.42, 0.43]),
    row(["7543", "bare", "ICE"], [0.085, 0.012, -0.027, 0.461], [1.96, 2.11]),
    row(["7543", "SEV-SNP", "XDP"], [10.565, 1.588, -0.071, 0.429], [0.42, 0.43]),
    row(["7543", "VM", "XDP"], [6.200, 1.261, -0.097, 0.431], [0.53, 0.53]),
    row(["7543", "VM", "ICE"], [0.071, 0.012, -0.013, 0.458], [1.97, 2.12]),
    row(["6421N", "bare", "XDP"], [1.888, 0.991, 0.007, 0.341], [0.68, 0.72]),
    row(["6421N", "bare", "ICE"], [0.0, 0.0, -0.066, 0.378], [2.28, 2.66]),
    row(["6421N", "SGX", "XDP"], [2.056, 1.039, 0.237, 4.098], [0.19, 0.19]),
    row(["6421N", "SGX", "ICE"], [0.298, -0.004, 46.199, 2.249], [0.24, 0.27]),
    row(["6312U", "bare", "XDP"], [1.630, 0.865, -0.070, 0.400], [0.74, 0.76]),
    row(["6312U", "bare", "ICE"], [-0.011, 0.003, -0.071, 0.417], [2.14, 2.40]),
    row(["6312U", "SGX", "XDP"], [2.048, 0.896, 0.319, 4.964], [0.17, 0.17]),
    row(["6312U", "SGX", "ICE"], [0.229, -0.001, 85.392, 1.560], [0.20, 0.24]),
];
