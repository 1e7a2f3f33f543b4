//! Entry points of fuzz targets: arbitrary bytes in the place of a file. They panic if a promise breaks.

use crate::key::PublicKey;
use crate::verified::{Bundle, Unpinned};

/// The bytes of a bundle, for a reader with a key and for one without.
pub fn bundle(bytes: &[u8]) {
    let key = bytes.get(16..48).and_then(|key| <&[u8; 32]>::try_from(key).ok());
    let pinned = key.and_then(|key| PublicKey::from_bytes(key).ok()).map(|key| Bundle::open(bytes, &key));
    let unpinned = Unpinned::open(bytes).map(|b| b.summary(|_| Ok([0; 32])));
    match (pinned, unpinned) {
        (Some(Ok(bundle)), Ok(summary)) => {
            assert_eq!(bundle.contents().check(), Ok(()));
            assert_eq!(bundle.contents().version, summary.version);
        }
        (Some(Ok(_)), Err(e)) => panic!("the reader without a key refuses it: {e}"),
        (Some(Err(a)), Err(b)) => assert_eq!(a, b),
        (Some(Err(e)), Ok(_)) => panic!("the reader with a key refuses it: {e}"),
        (None, Ok(_)) => panic!("signed by an invalid key"),
        (None, Err(_)) => {}
    }
}

/// Contents that a key has signed: what a hostile tenant sends to its own P4 VM.
#[cfg(feature = "author")]
pub fn signed_contents(bytes: &[u8]) {
    let key = crate::author::SigningKey::from_bytes(&[7; 32]);
    let Ok(file) = key.sign_encoded(bytes) else { return };
    match Bundle::open(&file, &key.public()) {
        Ok(bundle) => assert_eq!(key.sign(bundle.contents()).as_ref(), Ok(&file), "one encoding"),
        Err(e) => assert!(matches!(e, crate::BundleError::Contents(_)), "{e}"),
    }
}

/// The text of a public key's file, and of a manifest.
#[cfg(feature = "author")]
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
    let _manifest = crate::author::Manifest::parse(std::path::Path::new("fuzz.toml"), text);
}
