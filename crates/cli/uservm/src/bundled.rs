//! What an auditor expects of a VM whose programs come from signed bundles.

use std::path::{Path, PathBuf};

use p4shield_agent::audit::expect::ExpectedProgram;
use p4shield_agent::audit::finding::Digest;
use p4shield_agent::config::AuditConfig;
use p4shield_bundle::BundledProgram;
use p4shield_console::Refused;

use crate::bundles;

/// Expects the programs of these bundles, and the least number of header bytes that one of them needs. Each
/// has to be signed with the key in a file, and be for the audited VM.
pub(crate) fn expect(config: &mut AuditConfig, bundles: &[PathBuf], key: &Path) -> anyhow::Result<()> {
    let mut least = None;
    for path in bundles {
        let bundle = bundles::open(path, key)?;
        let owner = bundle.check_owner(&config.vm.tenant, &config.vm.name);
        owner.map_err(|e| Refused::because(&e).of(&path.display().to_string()))?;
        let contents = bundle.contents();
        for (expected, program) in config.expected.programs.iter_mut().zip(&contents.programs) {
            add(expected, program.as_ref())?;
        }
        least = Some(least.unwrap_or(u32::MAX).min(contents.header_bytes));
    }
    config.expected.header_bytes = least.unwrap_or(config.expected.header_bytes);
    Ok(())
}

/// Adds the program of one more bundle to what a direction may have.
fn add(expected: &mut ExpectedProgram, program: Option<&BundledProgram>) -> anyhow::Result<()> {
    let digest = program.map(bundles::digest).transpose()?.map(Digest);
    *expected = match (std::mem::take(expected), digest) {
        (ExpectedProgram::OneOf(mut digests), digest) => {
            digests.extend(digest);
            ExpectedProgram::OneOf(digests)
        }
        (_, Some(digest)) => ExpectedProgram::OneOf(vec![digest]),
        (_, None) => ExpectedProgram::None,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_agent::PageLocation;
    use p4shield_agent::config::VmConfig;
    use p4shield_bundle::author::SigningKey;
    use p4shield_bundle::{Contents, Entry};
    use p4shield_p4::{NoIncludes, Options};

    const ONE: &str = "tcp_guard.p4";
    const OTHER: &str = "dscp_mark.p4";

    /// Compiles one of two example programs.
    fn object(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/programs").join(name);
        let source = std::fs::read_to_string(path).unwrap();
        let compiled = p4shield_p4::compile(name, &source, &NoIncludes, &Options::default());
        compiled.unwrap_or_else(|e| panic!("{}", e.render(false))).object
    }

    fn program(name: &str, entries: Vec<Entry>) -> BundledProgram {
        BundledProgram { objects: vec![object(name)], p4info: None, entries }
    }

    #[test]
    fn an_audit_expects_what_the_p4_vm_reports_of_a_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let key = SigningKey::from_bytes(&[7; 32]);
        std::fs::write(at("key.pub"), format!("{}\n", key.public())).unwrap();
        let entry = Entry { map: "ports".into(), key: vec![0; 4], value: vec![1; 8] };
        let write = |name: &str, header_bytes, programs| {
            let (tenant, vm) = ("alice".to_owned(), Some("web".to_owned()));
            let contents = Contents { version: 1, tenant, vm, header_bytes, programs, checks: vec![] };
            std::fs::write(at(name), key.sign(&contents).unwrap()).unwrap();
            at(name)
        };
        let old = write("old", 200, [Some(program(ONE, vec![])), None]);
        let new = write("new", 96, [Some(program(ONE, vec![entry.clone()])), Some(program(OTHER, vec![]))]);
        let expected = |bundles: &[PathBuf]| {
            let vm = VmConfig { tenant: "alice".into(), name: "web".into(), key: at("vm.key") };
            let mut config = AuditConfig::new(vm, PageLocation::File("log".into()), "eth0".into(), vec![]);
            expect(&mut config, bundles, &at("key.pub")).unwrap();
            (config.expected.programs, config.expected.header_bytes)
        };
        let linked = |name| bundles::digest(&program(name, vec![])).unwrap();
        // As of the objects alone, which `--expect-ingress guard.o` names.
        std::fs::write(at("guard.o"), object(ONE)).unwrap();
        assert_eq!(linked(ONE), crate::objects::load(&[at("guard.o")]).unwrap().digest());
        let one = |digest| ExpectedProgram::OneOf(vec![Digest(digest)]);
        assert_eq!(expected(std::slice::from_ref(&old)), ([one(linked(ONE)), ExpectedProgram::None], 200));
        let with_entry = p4shield_bundle::program_digest(linked(ONE), &[entry]);
        assert_ne!(with_entry, linked(ONE), "an older bundle with other entries is another program");
        assert_eq!(expected(std::slice::from_ref(&new)), ([one(with_entry), one(linked(OTHER))], 96));
        let both = ExpectedProgram::OneOf(vec![Digest(linked(ONE)), Digest(with_entry)]);
        assert_eq!(expected(&[old, new]), ([both, one(linked(OTHER))], 96));
    }
}
