//! The HTML report: one self-contained file with its charts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use p4shield_plot::page::{STYLE, escape};
use p4shield_plot::{Band, Lines, Series};

use crate::claim::Claims;
use crate::timeline::Timeline;

/// Facts about the run, besides timeline and claims.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The switch between client and VM.
    pub(crate) switch: &'static str,
    /// What isolates the P4 VM.
    pub(crate) compartment: &'static str,
    /// The user VM, and the client.
    pub(crate) user_vm: &'static str,
    /// Number of established connections.
    pub(crate) established: usize,
    /// Kernel and processor.
    pub(crate) machine: String,
}

/// Creates the report's folder before the demonstration, so that an error is reported early.
pub(crate) fn prepare(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Writes `demo.html`, and `demo.json` with the same figures, into the existing `folder`. Returns the page's
/// path.
pub(crate) fn write(
    folder: &Path,
    facts: &Facts,
    timeline: &Timeline,
    claims: &Claims,
) -> anyhow::Result<PathBuf> {
    let page = folder.join("demo.html");
    let cannot = || format!("cannot write the report into {}", folder.display());
    std::fs::write(&page, html(facts, timeline, claims)?).with_context(cannot)?;
    let data = serde_json::json!({ "timeline": timeline, "claims": claims, "held": claims.held() });
    std::fs::write(folder.join("demo.json"), data.to_string()).with_context(cannot)?;
    Ok(page)
}

fn html(facts: &Facts, timeline: &Timeline, claims: &Claims) -> anyhow::Result<String> {
    let mut out = String::new();
    let verdict = if claims.held() { "every claim held" } else { "a claim failed" };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><title>P4 Shield demo: {verdict}</title>\
         <style>{STYLE}</style><h1>P4 Shield demo: {verdict}</h1>\
         <p>A tenant's P4 program, <code>tcp_guard.p4</code>, runs in the tenant's P4 VM and denies new TCP \
         connections to the user VM while its used TCP memory is over the tenant's threshold. The P4 VM \
         is {}; the user VM is {}. Switch: {}. {} connections stay \
         open throughout. {}.</p>",
        facts.compartment,
        escape(facts.user_vm),
        escape(facts.switch),
        facts.established,
        escape(&facts.machine),
    );
    for chart in charts(timeline) {
        out.push_str(&chart.svg()?);
    }
    out.push_str("<h2>Claims</h2><table><tr><th>Claim<th>Observed<th>");
    for c in claims.all() {
        let (class, word) = if c.held { ("held", "held") } else { ("broke", "failed") };
        let _ = write!(out, "<tr><td>{}<td>{}<td class={class}>{word}", escape(c.says), escape(&c.observed));
    }
    out.push_str("</table><h2>The auditor's reports</h2><table><tr><th>Second<th>Report");
    let mut last = "";
    for s in timeline.samples.iter().filter(|s| !s.audit.is_empty()) {
        if s.audit != last {
            let _ = write!(out, "<tr><td>{:.1}<td>{}", s.at, escape(&s.audit));
            last = &s.audit;
        }
    }
    out.push_str("</table></html>\n");
    Ok(out)
}

fn charts(t: &Timeline) -> [Lines; 3] {
    let mib = 1024.0 * 1024.0;
    let bands: Vec<_> =
        t.phases.iter().map(|p| Band { from: p.from, to: p.to, name: p.name.into() }).collect();
    let lines = |title: &str, y: &str, series: Vec<(&str, Vec<(f64, f64)>)>| Lines {
        title: title.into(),
        x: "seconds".into(),
        y: y.into(),
        series: series.into_iter().map(|(name, points)| Series { name: name.into(), points }).collect(),
        bands: bands.clone(),
        ..Lines::default()
    };
    let threshold = t.threshold as f64 / mib;
    [
        lines(
            "TCP memory of the user VM",
            "MiB",
            vec![("used", t.series(|s| s.used as f64 / mib)), ("threshold", t.series(|_| threshold))],
        ),
        lines(
            "New connections",
            "per second",
            vec![("accepted", t.series(|s| s.accepted as f64)), ("denied", t.series(|s| s.denied as f64))],
        ),
        lines(
            "Answers on established connections",
            "per second",
            vec![("answers", t.series(|s| s.answered as f64))],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Phase, Sample};
    use crate::traffic::Totals;

    #[test]
    fn the_report_shows_failed_claims_and_escapes_quotes() {
        let sample = Sample::new(1.0, 5 << 20, Totals::default(), Totals::default(), "1 < 2".into());
        let phases = vec![Phase { name: "below", from: 0.0, to: 1.0 }];
        let timeline = Timeline { threshold: 4 << 20, samples: vec![sample], phases };
        let facts = Facts {
            switch: "a bridge",
            compartment: "a process",
            user_vm: "a guest",
            established: 3,
            machine: "Linux".into(),
        };
        let mut claims = Claims::default();
        claims.check("water flows uphill", false, "it did not");
        let folder = tempfile::tempdir().unwrap();
        let page = write(folder.path(), &facts, &timeline, &claims).unwrap();
        let text = std::fs::read_to_string(page).unwrap();
        for word in ["a claim failed", "water flows uphill", "failed", "1 &lt; 2", "<svg", "below"] {
            assert!(text.contains(word), "{word} is missing");
        }
    }
}
