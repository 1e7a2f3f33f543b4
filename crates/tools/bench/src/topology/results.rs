//! The samples of a run, and the file from which an interrupted run goes on: a line of JSON for the settings,
//! then one for each sample.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Options, Place, Sample, Scenario};

/// Version of the file.
const VERSION: u32 = 1;

/// The settings that all samples of a file have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    version: u32,
    milliseconds: u64,
    rates: Vec<u32>,
    latency_rate: u32,
}

/// The samples so far.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) samples: Vec<Sample>,
    /// The file into which each is written, too.
    file: Option<(PathBuf, File)>,
}

impl Results {
    /// Begins with the samples of the options' file, if they name one. The file need not exist.
    pub(super) fn open(options: &Options) -> anyhow::Result<Self> {
        let Some(path) = &options.resume else { return Ok(Self::default()) };
        let settings = Settings {
            version: VERSION,
            milliseconds: options.time().as_millis() as u64,
            rates: options.rates(),
            latency_rate: options.latency_rate,
        };
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let samples = read(&text, &settings).with_context(|| format!("{}", path.display()))?;
        let settings = serde_json::to_string(&settings)? + "\n";
        // As they are: numbers that are read and written again may lose their last digit.
        let lines = match whole(&text) {
            "" => &settings,
            lines => lines,
        };
        let file = rewrite(path, lines);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { samples, file: Some((path.clone(), file)) })
    }

    /// Reports whether a sample was taken.
    pub(super) fn has(&self, place: Place, scenario: Scenario, bytes: u16) -> bool {
        let wanted = (place.round, place.level, place.tenants, scenario, bytes);
        self.samples.iter().any(|s| (s.round, s.level, s.tenants, s.scenario, s.bytes) == wanted)
    }

    pub(super) fn add(&mut self, sample: Sample) -> anyhow::Result<()> {
        if let Some((path, file)) = &mut self.file {
            let line = serde_json::to_string(&sample)? + "\n";
            file.write_all(line.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.samples.push(sample);
        Ok(())
    }
}

/// Replaces the file at once, and returns it for further lines.
fn rewrite(path: &Path, text: &str) -> std::io::Result<File> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path)?;
    OpenOptions::new().append(true).open(path)
}

/// Leaves out a last line that an interruption cut off.
fn whole(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

/// Reads the samples that were taken with these settings.
fn read(text: &str, settings: &Settings) -> anyhow::Result<Vec<Sample>> {
    let mut lines = whole(text).lines().enumerate();
    let Some((_, first)) = lines.next() else {
        ensure!(text.is_empty(), "it is no result file of bench topology; name another one after --resume");
        return Ok(Vec::new());
    };
    let found: Settings = serde_json::from_str(first)
        .context("line 1 has no settings of bench topology; name another file after --resume")?;
    if found != *settings {
        let Settings { milliseconds, rates, latency_rate, .. } = found;
        bail!(
            "it was begun with --milliseconds {milliseconds}, --rates {} and --latency-rate {latency_rate} \
             (version {}); give the same options, or name another file after --resume",
            rates.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            found.version,
        );
    }
    let sample = |(number, line): (usize, &str)| {
        let what = || format!("line {} is no sample; remove the line", number + 1);
        let sample: Sample = serde_json::from_str(line).with_context(what)?;
        let is_whole = sample.tenant_pps.len() == usize::from(sample.tenants);
        ensure!(is_whole, "line {}: the sample has figures of other tenants; remove the line", number + 1);
        Ok(sample)
    };
    lines.map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Percentiles;
    use crate::topology::Level;

    fn settings() -> Settings {
        Settings { version: VERSION, milliseconds: 9, rates: vec![1, 2], latency_rate: 1 }
    }

    fn line() -> String {
        let micros = Percentiles { p50: 1.0, p90: 1.0, p99: 1.0 };
        let sample = Sample {
            round: 1,
            scenario: Scenario::V2v,
            level: Level::Two,
            tenants: 1,
            bytes: 64,
            offered_pps: 1.5,
            tenant_pps: vec![0.1],
            overload_pps: vec![0.1],
            micros,
            lost_percent: 0.0,
            switches: 1,
            cores: 1,
            busy_cores: 0.5,
            memory_mb: 1.0,
        };
        serde_json::to_string(&sample).unwrap()
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
        let head = serde_json::to_string(&settings()).unwrap();
        let text = format!("{head}\n{0}\n{0}\n", line());
        assert_eq!(read(&text, &settings()).unwrap().len(), 2);
        assert_eq!(read(&text[..text.len() - 1], &settings()).unwrap().len(), 1);
        assert_eq!(read(&format!("{head}\n"), &settings()).unwrap().len(), 0);
        assert_eq!(read("", &settings()).unwrap().len(), 0);
    }

    #[test]
    fn other_files_and_other_settings_are_refused() {
        let head = serde_json::to_string(&settings()).unwrap();
        let error = |text: &str| format!("{:#}", read(text, &settings()).unwrap_err());
        assert!(error("[package]\nname").contains("line 1 has no settings"), "{}", error("[package]\nname"));
        assert!(error("text").contains("no result file"));
        assert!(error(&format!("{head}\n{{}}\n")).contains("line 2 is no sample"));
        assert!(error(&format!("{head}\n{}\n", line().replace("[0.1]", "[]"))).contains("line 2"));
        let other = head.replace("\"milliseconds\":9", "\"milliseconds\":8");
        assert!(error(&format!("{other}\n")).contains("begun with --milliseconds 8, --rates 1,2"));
    }
}
