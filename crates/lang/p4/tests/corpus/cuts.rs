//! Every program of the corpus, truncated: the compiler terminates soon on every prefix.
//!
//! By default, the prefixes are sampled. `P4SHIELD_EVERY_BYTE=1` truncates each file at every byte,
//! which gives millions of programs and needs a release build. `P4SHIELD_EVERY_BYTE=3/20` runs the
//! third of twenty parts. Each prefix goes through the whole compiler, although few pass the
//! checker, because `main` is at the end.

use super::{Files, testdata};
use p4shield_p4::{Options, compile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The limit for one program; the slowest whole program takes half a second.
const HANGS: Duration = Duration::from_secs(60);
/// Number of prefixes that a thread takes at a time, so that a large file does not occupy a single
/// thread.
const CUTS: usize = 256;
/// Distance in bytes between sampled prefixes.
const SAMPLED: usize = 9973;

/// A file, and the lengths of its prefixes.
struct Piece<'a> {
    name: &'a str,
    text: &'a str,
    cuts: Vec<usize>,
}

impl Piece<'_> {
    /// Compiles each prefix; returns those that made the compiler panic.
    fn compile(&self, files: &Files, at: &Mutex<Option<(String, Instant)>>) -> Vec<String> {
        let mut bad = Vec::new();
        for cut in &self.cuts {
            let place = format!("{} cut at byte {cut}", self.name);
            *at.lock().expect("no panic holds it") = Some((place.clone(), Instant::now()));
            let left = &self.text[..*cut];
            let compiled = || compile(self.name, left, files, &Options::default());
            match catch_unwind(AssertUnwindSafe(compiled)) {
                Ok(Err(d)) if d.plain().iter().any(|p| p.code == "E0999") => bad.push(place),
                Ok(_) => {}
                Err(_) => bad.push(place),
            }
        }
        *at.lock().expect("no panic holds it") = None;
        bad
    }
}

/// Collects all programs below a folder, with their names.
fn below(folder: &Path, out: &mut Vec<(String, String)>) {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for p in paths {
        if p.is_dir() {
            below(&p, out);
        } else if p.extension().is_some_and(|e| e == "p4")
            && let Ok(text) = std::fs::read_to_string(&p)
        {
            out.push((p.display().to_string(), text));
        }
    }
}

/// Returns the folders with programs; those with the reference compiler's output contain the same
/// programs.
fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).expect("the corpus");
    let mut out: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    out.retain(|p| p.is_dir() && !p.to_string_lossy().ends_with("_outputs"));
    out.sort();
    out
}

fn pieces(programs: &[(String, String)], step: usize) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut at = 0;
    for (name, text) in programs {
        let mut cuts: Vec<usize> =
            (at..=text.len()).step_by(step).filter(|i| text.is_char_boundary(*i)).collect();
        at = (at + step - (text.len() + 1) % step) % step;
        while !cuts.is_empty() {
            let rest = cuts.split_off(CUTS.min(cuts.len()));
            out.push(Piece { name, text, cuts });
            cuts = rest;
        }
    }
    out
}

/// Returns the requested part, from 1, and the number of parts; `None` for sampled prefixes.
fn part() -> Option<(usize, usize)> {
    let wanted = std::env::var("P4SHIELD_EVERY_BYTE").ok()?;
    let (part, of) = wanted.split_once('/').unwrap_or(("1", "1"));
    let part = part.parse().ok().zip(of.parse().ok()).filter(|(p, of)| (1..=*of).contains(p));
    Some(part.expect("P4SHIELD_EVERY_BYTE is 1, or a part such as 3/20"))
}

/// Ends the process if a program takes too long: a hanging thread cannot be stopped otherwise.
fn watch(threads: &[Mutex<Option<(String, Instant)>>], done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        for t in threads {
            if let Some((place, since)) = &*t.lock().expect("no panic holds it")
                && since.elapsed() > HANGS
            {
                println!("the compiler hangs: {place}");
                std::process::exit(101);
            }
        }
    }
}

#[test]
fn truncated_programs_terminate_without_panic() {
    let Some(root) = testdata() else { return };
    let part = part();
    let step = if part.is_some() { 1 } else { SAMPLED };
    let mut programs = Vec::new();
    folders(&root).iter().for_each(|f| below(f, &mut programs));
    let includes = root.parent().unwrap_or(&root).join("p4include");
    let files = Files(vec![root.join("p4_16_samples"), includes]);
    let mut pieces = pieces(&programs, step);
    if let Some((part, of)) = part {
        pieces = pieces.into_iter().skip(part - 1).step_by(of).collect();
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let working: Vec<Mutex<Option<(String, Instant)>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let (next, done, bad) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        s.spawn(|| watch(&working, &done));
        let workers: Vec<_> = working
            .iter()
            .map(|at| {
                s.spawn(|| {
                    while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                        bad.lock().expect("no panic holds it").extend(piece.compile(&files, at));
                    }
                })
            })
            .collect();
        let all_came_back = workers.into_iter().all(|w| w.join().is_ok());
        done.store(true, Ordering::Relaxed);
        assert!(all_came_back, "a thread of the test itself panicked");
    });
    let bad = bad.into_inner().expect("no panic holds it");
    let cuts: usize = pieces.iter().map(|p| p.cuts.len()).sum();
    println!("{} programs, {cuts} prefixes, {} failures", programs.len(), bad.len());
    assert!(bad.is_empty(), "{bad:#?}");
}
