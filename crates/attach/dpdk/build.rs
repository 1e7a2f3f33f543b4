//! Compiles the C part against the DPDK headers that are installed.
//!
//! Only the headers are used. The library must not need `librte_*` itself: the application brings DPDK, and a
//! process without it must be able to load us, too.

fn main() {
    let dpdk = pkg_config::Config::new()
        .cargo_metadata(false)
        .atleast_version("22.11")
        .probe("libdpdk")
        .unwrap_or_else(|e| {
            panic!("the DPDK headers are missing (package libdpdk-dev; scripts/setup.sh installs it): {e}")
        });
    shim(&dpdk, "src/shim/shim.c").compile("p4shield_dpdk_shim");
    // Packets from a real pool, for tests that ask for this library; nothing else links it.
    shim(&dpdk, "tests/common/pool.c").cargo_metadata(false).compile("p4shield_dpdk_pool");
    println!("cargo:rustc-link-search=native={}", std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/shim");
    println!("cargo:rerun-if-changed=tests/common/pool.c");
}

fn shim(dpdk: &pkg_config::Library, source: &str) -> cc::Build {
    let mut build = cc::Build::new();
    // DPDK's inline functions use SSE 4.2 on x86-64, which its own flags ask for as well.
    build.file(source).includes(&dpdk.include_paths).flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        build.flag("-march=corei7");
    }
    build.warnings(true).warnings_into_errors(true).flag_if_supported("-Wno-unused-parameter");
    build
}
