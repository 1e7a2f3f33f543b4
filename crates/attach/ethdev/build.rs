//! Compiles the C part and links it, with the DPDK libraries that it calls, into the shared library only.

const LIBRARIES: [&str; 4] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"];

fn main() {
    let dpdk = pkg_config::Config::new()
        .cargo_metadata(false)
        .atleast_version("22.11")
        .probe("libdpdk")
        .unwrap_or_else(|e| {
            panic!("the DPDK headers are missing (package libdpdk-dev; scripts/setup.sh installs it): {e}")
        });
    let mut build = cc::Build::new();
    build.files(["src/shim/shim.c", "src/shim/setup.c"]).includes(&dpdk.include_paths);
    // DPDK's inline functions use SSE 4.2 on x86-64, which its own flags ask for as well.
    build.flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        build.flag("-march=corei7");
    }
    // Its functions are called a million times a second, also by tests.
    build.opt_level(3).warnings(true).warnings_into_errors(true).flag_if_supported("-Wno-unused-parameter");
    build.cargo_metadata(false).compile("p4shield_ethdev_shim");
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo:rustc-cdylib-link-arg={folder}/libp4shield_ethdev_shim.a");
    for folder in &dpdk.link_paths {
        println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display());
    }
    for library in LIBRARIES {
        println!("cargo:rustc-cdylib-link-arg=-l{library}");
    }
    println!("cargo:rerun-if-changed=src/shim");
}
