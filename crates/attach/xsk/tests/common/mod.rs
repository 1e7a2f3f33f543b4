//! What the tests share.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub(crate) mod daemon;
pub(crate) mod scene;

use std::path::PathBuf;

/// Returns the library under test, which cargo puts beside the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let library = test.parent().map(|folder| folder.join("libp4shield_xsk.so")).expect("a folder");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}
