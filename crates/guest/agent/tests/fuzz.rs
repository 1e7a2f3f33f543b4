//! A short campaign through every fuzz entry point.

use p4shield_agent::fuzz;
use p4shield_testbed::campaign;

/// Returns inputs that overwrite a page: offset, claimed publications, and bytes.
fn scribbles() -> [Vec<u8>; 3] {
    let scribble =
        |at: u16, claimed: u64, bytes: &[u8]| [&at.to_le_bytes()[..], &claimed.to_le_bytes(), bytes].concat();
    [scribble(0, 2, &[0xff; 64]), scribble(7, u64::MAX, &[1; 200]), scribble(300, 3, &[0; 1900])]
}

#[test]
fn info_pages() {
    campaign(&scribbles(), fuzz::info_page);
}

#[test]
fn log_pages() {
    campaign(&scribbles(), fuzz::log_page);
}

#[test]
fn control_lines() {
    let requests = [
        r#"{"do":"set","key":"load","value":18446744073709551615,"for_ms":1000}"#,
        r#"{"do":"unset","key":"1"}"#,
        r#"{"do":"status"}"#,
    ];
    let answers = [r#"{"ok":"done"}"#, r#"{"ok":{"values":[]}}"#, r#"{"error":"no"}"#];
    let lines: Vec<_> = requests.into_iter().chain(answers).map(|l| l.as_bytes().to_vec()).collect();
    campaign(&lines, fuzz::control_line);
}

#[test]
fn proc_files() {
    let files = [
        "TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 324\nTCP6: inuse 7\n",
        "MemTotal: 9 kB\nMemAvailable: 8 kB\n",
        "some avg10=12.34 avg60=0.28\nfull avg10=0.05\n",
        " eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
    ];
    campaign(&files.map(|f| f.as_bytes().to_vec()), fuzz::proc_files);
}
