//! Statements of the documents about this binary.

use std::path::Path;

#[test]
fn the_exit_codes_of_the_audit_are_documented() {
    use p4shield_agent::audit::finding::exit_code as code;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/exit-codes.md");
    let text = std::fs::read_to_string(page).unwrap();
    for n in [
        code::BYPASSED,
        code::SWAPPED,
        code::INVENTED,
        code::WITHHELD,
        code::LOG_FORGED,
        code::LOG_STOPPED,
        code::RESTARTED,
        code::INFO_REFUSED,
        code::UNPROVEN,
    ] {
        assert!(text.contains(&format!("| {n} |")), "exit code {n} is not in docs/reference/exit-codes.md");
    }
}
