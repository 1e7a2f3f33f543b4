//! Libraries that are missing, or are others. EAL does not start in this process.

use std::path::{Path, PathBuf};

use p4shield_dpdk_ports::{DpdkConfig, DpdkPorts, Error};

fn refused(library: Option<&Path>, options: &str) -> Error {
    let config = DpdkConfig {
        devices: vec!["net_null0".into()],
        options: Some(options.to_owned()),
        library: library.map(Path::to_owned),
    };
    DpdkPorts::open(&config).unwrap_err()
}

#[test]
fn a_missing_library_is_named() {
    let missing = Path::new("/nowhere/libp4shield_ethdev.so");
    let error = refused(Some(missing), "--no-pci");
    assert!(matches!(&error, Error::Load { path, .. } if path == missing), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("No such file") && text.contains("--dpdk-library"), "{text}");
    // A name alone is a file of the working folder, and is not searched for.
    assert!(matches!(refused(Some(Path::new("libp4shield_ethdev.so")), ""), Error::Load { .. }));
}

#[test]
fn another_library_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    assert!(matches!(refused(Some(&text), "--no-pci"), Error::Load { .. }));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("libc.so.6")).map(PathBuf::from);
    let error = refused(Some(&libc.unwrap()), "--no-pci");
    assert!(matches!(&error, Error::Load { why, .. } if why.contains("p4shield_ethdev_table")), "{error:?}");
}

#[test]
fn options_are_checked_before_anything_is_loaded() {
    for options in ["--help", "--no-pci -h", "--no-pci -- --x"] {
        assert!(matches!(refused(None, options), Error::Option { .. }), "{options}");
    }
}
