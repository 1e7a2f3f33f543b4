//! The manifest: a TOML file that says what goes into a bundle.
//!
//! It is checked as a whole: `file` is its structure, [`Manifest::parse`] checks the values and reads no
//! file, and [`Manifest::collect`] reads the files that it names. `docs/how-to/bundles.md` describes the
//! keys.

mod error;
mod file;

use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use p4shield_abi::Direction;
use p4shield_abi::channel::{DEFAULT_HEADER_BYTES, MAX_HEADER_BYTES};
use toml::Spanned;

use crate::contents::{BundledProgram, Contents, Entry, HealthCheck};
use crate::limits::{MAX_NAME, MAX_OBJECTS, MAX_P4INFO, MIN_HEADER_BYTES};

pub use error::{ManifestError, Problem};
use file::Text;

/// Most bytes of a manifest.
const MAX_MANIFEST: usize = 4 << 20;

/// A valid manifest, whose files are not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    path: PathBuf,
    text: String,
    /// The contents without objects and P4Info.
    contents: Contents,
    files: [Files; 2],
    /// Where each program begins.
    programs: [Range<usize>; 2],
}

/// The files of a program, each with its place in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Files {
    objects: Vec<(PathBuf, Range<usize>)>,
    p4info: Option<(PathBuf, Range<usize>)>,
}

impl Manifest {
    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// The file cannot be read or is refused.
    pub fn load(path: &Path) -> Result<Self, ManifestError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ManifestError::Read { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks the text of a manifest at `path`, to whose folder relative paths in it refer. Reads no file.
    /// Entry point of fuzzing.
    ///
    /// # Errors
    /// The text is refused.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ManifestError> {
        let refused = |problems| ManifestError::Refused { file: path.to_owned(), problems };
        if text.len() > MAX_MANIFEST {
            let message = format!("the file has more than {MAX_MANIFEST} bytes; write fewer entries");
            return Err(refused(vec![Problem { line: 1, column: 1, message }]));
        }
        let file: file::File = toml::from_str(text).map_err(|e| refused(vec![Problem::syntax(text, &e)]))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut checker = Checker { text, folder, problems: Vec::new() };
        let (contents, files) = checker.check(&file);
        checker.finish().map_err(refused)?;
        let span = |p: &Option<Spanned<file::Program>>| p.as_ref().map_or(0..0, Spanned::span);
        let programs = [span(&file.ingress), span(&file.egress)];
        Ok(Self { path: path.to_owned(), text: text.to_owned(), contents, files, programs })
    }

    /// Reads the files that the manifest names, and returns the contents of the bundle.
    ///
    /// # Errors
    /// A file cannot be read, or a limit of a bundle is exceeded.
    pub fn collect(self) -> Result<Contents, ManifestError> {
        let Self { path, text, mut contents, files, programs } = self;
        let mut problems = Vec::new();
        for ((program, files), span) in contents.programs.iter_mut().zip(&files).zip(programs) {
            let Some(program) = program else { continue };
            let mut read = |(path, span): &(PathBuf, Range<usize>), limit: usize| {
                read(path, limit).unwrap_or_else(|why| {
                    problems.push(Problem::at(&text, span.clone(), format!("{}: {why}", path.display())));
                    Vec::new()
                })
            };
            program.objects = files.objects.iter().map(|file| read(file, MAX_OBJECTS)).collect();
            program.p4info = files.p4info.as_ref().map(|file| read(file, MAX_P4INFO));
            if program.objects.iter().map(Vec::len).sum::<usize>() > MAX_OBJECTS {
                let message = format!("the objects of a program have at most {MAX_OBJECTS} bytes");
                problems.push(Problem::at(&text, span, message));
            }
        }
        if problems.is_empty()
            && let Err(reason) = contents.check()
        {
            problems.push(Problem::at(&text, 0..0, reason.to_string()));
        }
        if problems.is_empty() { Ok(contents) } else { Err(ManifestError::Refused { file: path, problems }) }
    }
}

fn read(path: &Path, limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| format!("cannot open it: {e}"))?;
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot read it: {e}"))?;
    match bytes.len() {
        0 => Err("the file is empty".to_owned()),
        n if n > limit => Err(format!("the file has more than {limit} bytes")),
        _ => Ok(bytes),
    }
}

struct Checker<'a> {
    text: &'a str,
    folder: &'a Path,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn problem(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.problems.push(Problem::at(self.text, span, message.into()));
    }

    fn finish(mut self) -> Result<(), Vec<Problem>> {
        self.problems.sort_by_key(|p| (p.line, p.column));
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    fn check(&mut self, file: &file::File) -> (Contents, [Files; 2]) {
        if *file.version.as_ref() == 0 {
            self.problem(
                file.version.span(),
                "version: write 1 for the first bundle, and more for each newer one",
            );
        }
        if file.ingress.is_none() && file.egress.is_none() {
            self.problem(0..0, "there is no program: write a table [ingress] or [egress] with objects");
        }
        let (ingress, of_ingress) = self.program(file.ingress.as_ref());
        let (egress, of_egress) = self.program(file.egress.as_ref());
        let programs = [ingress, egress];
        let (mut checks, mut names) = (Vec::new(), HashSet::new());
        for check in &file.check {
            let made = self.health_check(check.as_ref(), &programs);
            if !names.insert(made.name.clone()) {
                let message = format!("check.name: another check has the name {:?}", made.name);
                self.problem(check.as_ref().name.span(), message);
            }
            checks.push(made);
        }
        let contents = Contents {
            version: *file.version.as_ref(),
            tenant: self.name("tenant", &file.tenant),
            vm: file.vm.as_ref().map(|vm| self.name("vm", vm)),
            header_bytes: self.header_bytes(file.header_bytes.as_ref()),
            programs,
            checks,
        };
        (contents, [of_ingress, of_egress])
    }

    fn name(&mut self, key: &str, name: &Text) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let text = name.as_ref();
        if !(1..=MAX_NAME).contains(&text.len()) || !text.chars().all(plain) {
            let message = format!(
                "{key}: {text:?} is invalid; use 1 to {MAX_NAME} letters, digits, dots, dashes and \
                 underscores"
            );
            self.problem(name.span(), message);
        }
        text.clone()
    }

    fn header_bytes(&mut self, value: Option<&Spanned<u32>>) -> u32 {
        let Some(value) = value else { return DEFAULT_HEADER_BYTES };
        if !(MIN_HEADER_BYTES..=MAX_HEADER_BYTES).contains(value.as_ref()) {
            let message =
                format!("header_bytes: write a number from {MIN_HEADER_BYTES} to {MAX_HEADER_BYTES}");
            self.problem(value.span(), message);
        }
        *value.as_ref()
    }

    fn program(&mut self, program: Option<&Spanned<file::Program>>) -> (Option<BundledProgram>, Files) {
        let Some(program) = program else { return (None, Files::default()) };
        let file::Program { objects, p4info, entry } = program.as_ref();
        if objects.is_empty() {
            self.problem(
                program.span(),
                "objects: name at least one eBPF object, as `p4shield compile` writes it",
            );
        }
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        for written in entry {
            let file::Entry { map, key, value } = written.as_ref();
            let entry = Entry {
                map: map.as_ref().clone(),
                key: self.hex("entry.key", key),
                value: self.hex("entry.value", value),
            };
            if !seen.insert((entry.map.clone(), entry.key.clone())) {
                let message = format!("entry.key: map {:?} has an entry with this key already", entry.map);
                self.problem(key.span(), message);
            }
            entries.push(entry);
        }
        let place = |path: &Spanned<PathBuf>| (self.folder.join(path.as_ref()), path.span());
        let files =
            Files { objects: objects.iter().map(place).collect(), p4info: p4info.as_ref().map(place) };
        (Some(BundledProgram { entries, ..BundledProgram::default() }), files)
    }

    fn health_check(&mut self, check: &file::Check, programs: &[Option<BundledProgram>; 2]) -> HealthCheck {
        let name = self.name("check.name", &check.name);
        let direction = Direction::ALL.into_iter().find(|d| d.name() == check.direction.as_ref());
        match direction {
            None => self.problem(check.direction.span(), "check.direction: write \"ingress\" or \"egress\""),
            Some(d) if programs[d as usize].is_none() => {
                let message = format!("check.direction: there is no program for {}; write [{0}]", d.name());
                self.problem(check.direction.span(), message);
            }
            Some(_) => {}
        }
        if !matches!(check.expect.as_ref().as_str(), "pass" | "drop") {
            self.problem(check.expect.span(), "check.expect: write \"pass\" or \"drop\"");
        }
        let packet = self.hex("check.packet", &check.packet);
        let (least, most) = (MIN_HEADER_BYTES as usize, MAX_HEADER_BYTES as usize);
        if !(least..=most).contains(&packet.len()) && !packet.is_empty() {
            let message = format!("check.packet: {} bytes; write {least} to {most}", packet.len());
            self.problem(check.packet.span(), message);
        }
        let information = check.information.as_ref().map(|fields| {
            for field in fields {
                if field.as_ref().field as usize >= p4shield_abi::info::FIELDS {
                    let message = format!("field: there are fields 0 to {}", p4shield_abi::info::FIELDS - 1);
                    self.problem(field.span(), message);
                }
            }
            fields.iter().map(|f| (f.as_ref().field, f.as_ref().value)).collect()
        });
        HealthCheck {
            name,
            direction: direction.unwrap_or(Direction::Ingress) as u8,
            packet,
            passes: check.expect.as_ref() == "pass",
            information,
        }
    }

    /// Parses hexadecimal digits, between which spaces may stand.
    fn hex(&mut self, key: &str, value: &Text) -> Vec<u8> {
        let digits: Option<Vec<u8>> = value
            .as_ref()
            .chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| c.to_digit(16).map(|d| d as u8))
            .collect();
        match digits {
            Some(digits) if digits.len().is_multiple_of(2) && !digits.is_empty() => {
                digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
            }
            _ => {
                self.problem(
                    value.span(),
                    format!("{key}: write pairs of hexadecimal digits, such as \"0a2b\""),
                );
                Vec::new()
            }
        }
    }
}
