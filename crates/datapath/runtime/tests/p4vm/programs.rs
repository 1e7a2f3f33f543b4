//! Tenants' programs in C.

use std::path::PathBuf;
use std::process::Command;

const HEAD: &str = "
    struct map { unsigned type, key, value, entries, flags; };
    struct context { unsigned long long data, data_end; unsigned port, length, action, out, direction, vm;
                     unsigned long long time; };
    static void *(*lookup)(void *, const void *) = (void *)1;
    static unsigned long long (*info)(void *, unsigned) = (void *)1000;
    static unsigned long long (*status)(void *) = (void *)1001;
    #define PROGRAM __attribute__((section(\"p4\"))) long p4_main(struct context *c)
";

/// Passes everything.
pub(crate) const PASS: &str = "PROGRAM { return 1; }";

/// Passes packets whose first byte is odd; counts all in a table.
pub(crate) const ODD: &str = "
    __attribute__((section(\"maps\"), used)) struct map counts = {2, 4, 8, 4, 0};
    PROGRAM {
        unsigned char *p = (unsigned char *)c->data;
        if (p + 14 > (unsigned char *)c->data_end) return 0;
        unsigned key = 1;
        unsigned long long *n = lookup(&counts, &key);
        if (n) *n += 1;
        return p[0] & 1;
    }";

/// Returns the first byte.
pub(crate) const FIRST_BYTE: &str = "
    PROGRAM {
        unsigned char *p = (unsigned char *)c->data;
        return p + 14 > (unsigned char *)c->data_end ? 0 : p[0];
    }";

/// Writes the number of its version into the second byte of every packet. Two versions have different
/// digests.
pub(crate) fn stamp(version: u8) -> String {
    format!(
        "PROGRAM {{
            unsigned char *p = (unsigned char *)c->data;
            if (p + 14 > (unsigned char *)c->data_end) return 0;
            p[1] = {version};
            return 1;
        }}"
    )
}

/// Passes while the application's first value is known and 7; otherwise drops.
pub(crate) const ASKS: &str = "PROGRAM { return status(c) == 0 && info(c, 128) == 7; }";

/// Passes, but reads a value without checking whether it is known.
pub(crate) const CARELESS: &str = "PROGRAM { return info(c, 128) != 123456; }";

/// Reads the packet without checking its length.
pub(crate) const UNSAFE: &str = "PROGRAM { return *(unsigned char *)(c->data + 20); }";

/// Compiles a program.
pub(crate) fn object(source: &str) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    source.hash(&mut hash);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("p4vm-{:x}-{}", hash.finish(), std::process::id());
    let (input, output) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.o")));
    std::fs::write(&input, format!("{HEAD}{source}")).unwrap();
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-target", "bpf", "-mcpu=v3", "-Wno-unused", "-c"]).arg(&input).arg("-o").arg(&output);
    assert!(clang.status().expect("clang is installed").success());
    let bytes = std::fs::read(&output).unwrap();
    std::fs::remove_file(input).and(std::fs::remove_file(output)).unwrap();
    bytes
}
