//! Any bytes as the schema of an object, which reads back as it was.
#![no_main]

use p4shield_abi::schema::Schema;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(schema) = Schema::decode(bytes) {
        assert_eq!(schema.encode(), bytes);
    }
});
