//! The samples of a run, and the file from which an interrupted run goes on: a line of JSON for the settings,
//! then one for each sample.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The settings that all samples of a file have in common.
pub(crate) trait Settings: Serialize + DeserializeOwned + PartialEq {
    /// The command whose settings they are.
    const COMMAND: &str;

    /// Returns the options that give them, for an error.
    fn options(&self) -> String;
}

/// A sample in a file.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// Reports whether its figures are those of its own tenants.
    fn is_whole(&self) -> bool;
}

/// The samples so far.
#[derive(Debug)]
pub(crate) struct Samples<S> {
    pub(crate) samples: Vec<S>,
    /// The file into which each is written, too.
    file: Option<(PathBuf, File)>,
}

impl<S: Record> Samples<S> {
    /// Begins with the samples of a file, if there is to be one. It need not exist.
    pub(crate) fn open<T: Settings>(path: Option<&Path>, settings: &T) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self { samples: Vec::new(), file: None }) };
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let samples = read(&text, settings).with_context(|| format!("{}", path.display()))?;
        let settings = serde_json::to_string(settings)? + "\n";
        // As they are: numbers that are read and written again may lose their last digit.
        let lines = match whole(&text) {
            "" => &settings,
            lines => lines,
        };
        let file = rewrite(path, lines);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { samples, file: Some((path.to_owned(), file)) })
    }

    pub(crate) fn add(&mut self, sample: S) -> anyhow::Result<()> {
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
fn read<T: Settings, S: Record>(text: &str, settings: &T) -> anyhow::Result<Vec<S>> {
    let command = T::COMMAND;
    let mut lines = whole(text).lines().enumerate();
    let Some((_, first)) = lines.next() else {
        ensure!(text.is_empty(), "it is no result file of {command}; name another one after --resume");
        return Ok(Vec::new());
    };
    let found: T = serde_json::from_str(first)
        .with_context(|| format!("line 1 has no settings of {command}; name another file after --resume"))?;
    if found != *settings {
        bail!(
            "it was begun with {}; give the same options, or name another file after --resume",
            found.options(),
        );
    }
    let sample = |(number, line): (usize, &str)| {
        let what = || format!("line {} is no sample; remove the line", number + 1);
        let sample: S = serde_json::from_str(line).with_context(what)?;
        let is_whole = sample.is_whole();
        ensure!(is_whole, "line {}: the sample has figures of other tenants; remove the line", number + 1);
        Ok(sample)
    };
    lines.map(sample).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Options {
        milliseconds: u64,
    }

    impl Settings for Options {
        const COMMAND: &str = "bench this";

        fn options(&self) -> String {
            format!("--milliseconds {}", self.milliseconds)
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        tenants: Vec<f64>,
    }

    impl Record for Sample {
        fn is_whole(&self) -> bool {
            self.tenants.len() == 1
        }
    }

    const HEAD: &str = "{\"milliseconds\":9}";
    const LINE: &str = "{\"tenants\":[0.1]}";

    fn samples(text: &str) -> anyhow::Result<Vec<Sample>> {
        read(text, &Options { milliseconds: 9 })
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
        let text = format!("{HEAD}\n{LINE}\n{LINE}\n");
        assert_eq!(samples(&text).unwrap().len(), 2);
        assert_eq!(samples(&text[..text.len() - 1]).unwrap().len(), 1);
        assert_eq!(samples(&format!("{HEAD}\n")).unwrap().len(), 0);
        assert_eq!(samples("").unwrap().len(), 0);
    }

    #[test]
    fn other_files_and_other_settings_are_refused() {
        let error = |text: &str| format!("{:#}", samples(text).unwrap_err());
        assert!(error("[package]\nname").contains("line 1 has no settings of bench this"));
        assert!(error("text").contains("no result file"));
        assert!(error(&format!("{HEAD}\n{{}}\n")).contains("line 2 is no sample"));
        assert!(error(&format!("{HEAD}\n{}\n", LINE.replace("[0.1]", "[]"))).contains("line 2"));
        assert!(error("{\"milliseconds\":8}\n").contains("begun with --milliseconds 8; give"));
    }

    #[test]
    fn lines_of_a_run_before_are_kept_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let settings = Options { milliseconds: 9 };
        let open = || Samples::<Sample>::open(Some(&path), &settings).unwrap();
        open().add(Sample { tenants: vec![1.5] }).unwrap();
        // As if it had been interrupted while it wrote.
        std::fs::write(&path, format!("{HEAD}\n{LINE}\n{{\"ten")).unwrap();
        let mut again = open();
        assert_eq!(again.samples, [Sample { tenants: vec![0.1] }]);
        again.add(Sample { tenants: vec![2.5] }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{HEAD}\n{LINE}\n{{\"tenants\":[2.5]}}\n"));
    }
}
