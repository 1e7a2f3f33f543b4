//! Policies that are refused, and what an accepted one says.

use super::*;

fn problems(text: &str) -> Vec<String> {
    match Policy::parse(Path::new("/etc/policy.toml"), text) {
        Err(PolicyError::Refused { problems, .. }) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{text:?} is {other:?}"),
    }
}

fn only_problem(text: &str) -> String {
    let all = problems(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

#[test]
fn mistakes_are_refused_with_place_and_remedy() {
    for (text, expected) in [
        ("", "1:1: the policy accepts no machine: write a table [sev-snp] or [tdx]"),
        ("[snp]", "1:2: unknown field `snp`"),
        ("sample = 1", "1:10: invalid type: integer `1`, expected a boolean"),
        ("[tdx]\nany_mrtd = true", "1:1: tdx.collateral: the list is missing; name the files"),
        (
            "[tdx]\ncollateral = [\"a\"]",
            "1:1: tdx.mrtd: the list is missing or empty; write the measurements",
        ),
        (
            "[tdx]\ncollateral = [\"a\"]\nany_mrtd = true\nrtmr0 = []",
            "1:1: tdx.rtmr0: the list is empty, so no machine is accepted",
        ),
        (
            "[tdx]\ncollateral = [\"a\"]\nmrtd = [\n  \"0f\"]",
            "4:3: tdx.mrtd: \"0f\" is not 48 bytes; write 96 hexadecimal digits",
        ),
        (
            "[tdx]\ncollateral = [\"a\"]\nany_mrtd = true\ntcb_statuses = [\"Revoked\"]",
            "4:17: tdx.tcb_statuses: \"Revoked\" is not a status that can be accepted; write one or more of \
             UpToDate",
        ),
        (
            "[tdx]\ncollateral = [\"a\"]\nany_mrtd = true\ntcb_statuses = []",
            "1:1: tdx.tcb_statuses: the list is empty",
        ),
        (
            "[sev-snp]\nany_measurement = true",
            "1:1: sev-snp.crl: the list is missing; name the revocation lists of AMD's roots",
        ),
        (
            "[sev-snp]\nany_measurement = true\ncrl = [\"a\"]\nunchecked_revocation = true",
            "1:1: sev-snp.unchecked_revocation: crl names revocation lists, too; remove one",
        ),
        (
            "[sev-snp]\nany_measurement = true\ncrl = [\"a\"]\nminimum_firmware = \"1.55\"",
            "4:20: sev-snp.minimum_firmware: \"1.55\" is not a version; write major, minor and build",
        ),
        (
            "[sev-snp]\nany_measurement = true\ncrl = [\"a\"]\nminimum_tcb = { bootloader = 300, tee = 0, \
             snp = 0, microcode = 0 }",
            "4:30: invalid value: integer `300`, expected u8",
        ),
        (
            "[sev-snp]\nany_measurement = true\ncrl = [\"a\"]\nminimum_tcb = { snp = 8 }",
            "4:15: missing field `bootloader`",
        ),
    ] {
        let problem = only_problem(text);
        assert!(problem.starts_with(expected), "{text:?}: {problem}");
    }
    let both =
        format!("[sev-snp]\nany_measurement = true\nmeasurements = [\"{}\"]\ncrl = [\"a\"]", "00".repeat(48));
    assert!(only_problem(&both).contains("any_measurement: sev-snp.measurements lists"), "{both}");
    assert_eq!(problems("[tdx]\n[sev-snp]").len(), 4);
    assert!(only_problem(&" ".repeat(MAX_POLICY + 1)).contains("more than"));
}

#[test]
fn paths_are_relative_to_the_policys_folder() {
    let text = "[tdx]\nany_mrtd = true\ncollateral = [\"here.json\", \"/there.json\"]";
    let policy = Policy::parse(Path::new("/etc/p4shield/policy.toml"), text).unwrap();
    let expected = ["/etc/p4shield/here.json", "/there.json"].map(PathBuf::from);
    assert_eq!(policy.tdx.unwrap().collateral, expected);
}

fn warnings(text: &str) -> Vec<String> {
    let policy = Policy::parse(Path::new("policy.toml"), text).unwrap();
    let warnings = policy.explain().into_iter().filter(|s| s.weight == Weight::Warning);
    warnings.map(|s| s.text).collect()
}

#[test]
fn whatever_a_policy_leaves_open_is_a_warning() {
    let bytes = |n: usize| "0f".repeat(n);
    let strict = format!(
        "[sev-snp]\nmeasurements = [\"{m}\"]\nhost_data = [\"{h}\"]\ncrl = [\"milan.crl\"]\n\
         minimum_tcb = {{ bootloader = 3, tee = 0, snp = 8, microcode = 115 }}\n\
         [tdx]\nmrtd = [\"{m}\"]\nrtmr0 = [\"{m}\"]\nrtmr1 = [\"{m}\"]\nrtmr2 = [\"{m}\"]\n\
         mr_config_id = [\"{m}\"]\ncollateral = [\"a\"]\n",
        m = bytes(48),
        h = bytes(32)
    );
    assert_eq!(warnings(&strict), [""; 0]);
    let loose = "sample = true\n\
                 [sev-snp]\nany_measurement = true\nunchecked_revocation = true\ndebug = true\nvlek = true\n\
                 migration_agent = true\n\
                 [tdx]\nany_mrtd = true\ndebug = true\ntcb_statuses = [\"OutOfDate\"]\ncollateral = \
                 [\"a\"]\n";
    let found = warnings(loose);
    for expected in [
        "\"not attested\"",
        "any measurement is accepted",
        "any HOST_DATA is accepted",
        "any TCB is accepted",
        "debugging may be on",
        "a migration agent is accepted",
        "(VLEK) may sign",
        "revocation is not checked",
        "any MRTD is accepted",
        "RTMR0, RTMR1 and RTMR2 are not all listed",
        "any MRCONFIGID is accepted",
        "other TCB statuses than UpToDate",
    ] {
        assert!(found.iter().any(|w| w.contains(expected)), "no warning has {expected:?}: {found:?}");
    }
    assert_eq!(found.len(), 13, "{found:?}");
}

#[test]
fn registers_that_measured_nothing_are_warnings() {
    let (zeros, other) = ("00".repeat(48), "0f".repeat(48));
    let policy = format!(
        "[tdx]\nmrtd = [\"{other}\"]\nrtmr0 = [\"{other}\"]\nrtmr1 = [\"{other}\"]\n\
         rtmr2 = [\"{other}\", \"{zeros}\"]\nrtmr3 = [\"{zeros}\"]\nmr_config_id = [\"{other}\"]\n\
         collateral = [\"a\"]"
    );
    let found = warnings(&policy);
    assert!(matches!(&found[..], [one] if one.contains("RTMR2 may be zeros")), "{found:?}");
}

/// Returns the keys that a table accepts, as the parser names them.
fn keys(table: &str) -> Vec<String> {
    let message = only_problem(&format!("{table}\nx = 1"));
    let (_, list) = message.split_once("expected one of").unwrap_or_else(|| panic!("{message}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_reference_has_each_key() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/attestation-policy.md");
    let text = std::fs::read_to_string(page).unwrap();
    for key in ["", "[sev-snp]", "[tdx]"].into_iter().flat_map(keys) {
        assert!(
            text.contains(&format!("| `{key}` |")) || text.contains(&format!("`[{key}]`")),
            "no {key} in {page}"
        );
    }
}

#[test]
fn the_policies_in_the_documents_are_accepted() {
    for page in ["reference/attestation-policy.md", "how-to/attestation-policy.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks: Vec<_> = text.split("```toml\n").skip(1).collect();
        assert!(!blocks.is_empty(), "{page} shows no policy");
        for block in blocks {
            let policy = block.split("```").next().unwrap();
            assert!(Policy::parse(&path, policy).is_ok(), "{page}:\n{policy}");
        }
    }
}
