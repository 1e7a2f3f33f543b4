//! Errors and warnings: message, location and hint.
//!
//! Codes are stable: scripts and documentation may rely on them. `E08xx` means that the program may
//! be valid P4 but uses a construct that this compiler does not support yet; every other `E` means
//! that the program is invalid.

use crate::source::{SourceMap, Span};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::fmt;

macro_rules! codes {
    ($($name:ident = $code:literal, $title:literal;)*) => {
        /// The kind of a diagnostic.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $title] $name),* }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the stable code, such as `E0301`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// Returns the meaning of the code in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }
        }
    };
}

codes! {
    BadCharacter = "E0101", "a character or literal that P4 does not have";
    UnterminatedText = "E0102", "a comment or string without an end";
    BadDirective = "E0103", "an invalid preprocessor directive";
    IncludeNotFound = "E0104", "an include file that was not found";
    UnbalancedConditional = "E0105", "an unbalanced #if, #else or #endif";
    UserError = "E0106", "an #error directive";
    Syntax = "E0201", "a syntax error";
    UnknownName = "E0301", "a name that is not declared";
    DuplicateName = "E0302", "a name that is declared twice";
    WrongKind = "E0303", "a name of the wrong kind";
    UnknownMember = "E0304", "a field or method that does not exist";
    Recursive = "E0305", "a type or function that contains or calls itself";
    SameControlName = "E0306", "two objects of a kind with one name in the control plane";
    TypeMismatch = "E0401", "mismatched types";
    BadOperand = "E0402", "an operator that is not defined for its operands";
    BadCast = "E0403", "an invalid cast";
    BadArguments = "E0404", "arguments that do not match the parameters";
    CannotInfer = "E0405", "a type that cannot be inferred";
    NotAssignable = "E0406", "an assignment to an expression that is not an l-value";
    BadType = "E0407", "a type that is not allowed here";
    BadWidth = "E0408", "a width or an index out of range";
    NotConstant = "E0501", "a value that must be known at compile time";
    DivisionByZero = "E0502", "a division by zero";
    BadConstant = "E0503", "a constant out of range";
    BadStatement = "E0601", "a statement that is not allowed here";
    BadParser = "E0602", "an invalid parser";
    BadTable = "E0603", "an invalid table";
    BadMain = "E0604", "a missing or invalid main package";
    BadReturn = "E0605", "a return that does not match the function";
    BadInstance = "E0606", "an invalid instantiation";
    BadAnnotation = "E0607", "an invalid annotation";
    Unsupported = "E0801", "not supported yet";
    TooDeep = "E0901", "code that is nested too deeply";
    TooLarge = "E0902", "a program that is too large";
    TooManyErrors = "E0903", "more errors than are reported";
    Internal = "E0999", "a compiler bug";
    ConstantOverflow = "W0101", "a constant that does not fit its type";
    Unused = "W0102", "an unused declaration or value";
    Uninitialised = "W0103", "a value that is read before it is written";
    Shadowing = "W0104", "a name that shadows another one";
    UnreachableCode = "W0105", "unreachable code";
    UserWarning = "W0106", "a #warning directive";
    UnknownInformation = "W0107", "in-VM information that is read without a check whether it is known";
    MissingDefault = "W0108", "a select without default";
    EmptyRange = "W0109", "a range that matches nothing";
    InvalidHeader = "W0110", "a field of a header that is not valid";
    TooLong = "W0111", "a program that is too long to load";
    NeverAccepts = "W0112", "a parser that rejects every packet";
    MisplacedMetric = "W0113", "a @metric that marks no counter of its own name";
    LoopLimit = "W0114", "a loop that may iterate more often than it is unrolled";
}

impl Code {
    /// Whether the compiler refuses the program.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.as_str().starts_with('E')
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of the error or warning.
    pub code: Code,
    /// The message, one sentence.
    pub message: String,
    /// The location in the source.
    pub span: Span,
    /// Advice on how to fix it.
    pub hint: Option<String>,
    /// Other relevant locations, each with a label.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    /// A diagnostic without a hint.
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), span, hint: None, related: Vec::new() }
    }

    /// Adds advice on how to fix it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds another relevant location.
    #[must_use]
    pub fn related(mut self, span: Span, what: impl Into<String>) -> Self {
        self.related.push((span, what.into()));
        self
    }
}

/// A diagnostic without references to a source map, for JSON output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainDiagnostic {
    /// The stable code.
    pub code: &'static str,
    /// Whether it is an error, so that the compiler refuses the program.
    pub error: bool,
    /// The message.
    pub message: String,
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Last line of the location, from 1.
    pub end_line: u32,
    /// Column behind the location, from 1.
    pub end_column: u32,
    /// The source line.
    pub source: String,
    /// Advice on how to fix it.
    pub hint: Option<String>,
    /// Other relevant locations.
    pub related: Vec<RelatedLocation>,
}

/// Another relevant location of a [`PlainDiagnostic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedLocation {
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Last line of the location, from 1.
    pub end_line: u32,
    /// Column behind the location, from 1.
    pub end_column: u32,
    /// The label.
    pub message: String,
}

/// Maximum number of errors, and of warnings, that one run reports.
const MAX_ERRORS: usize = 100;

/// All diagnostics of one run, with the source files they refer to.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    sources: SourceMap,
    items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Sorts diagnostics by location, removes duplicates and all beyond [`MAX_ERRORS`].
    #[must_use]
    pub(crate) fn new(sources: SourceMap, mut items: Vec<Diagnostic>) -> Self {
        items.sort_by_key(|d| (d.span.file, d.span.start, d.code));
        items.dedup_by(|a, b| a.span == b.span && a.code == b.code && a.message == b.message);
        let errors = items.iter().filter(|d| d.code.is_error()).count();
        let mut seen = [0, 0];
        items.retain(|d| {
            let seen = &mut seen[usize::from(d.code.is_error())];
            *seen += 1;
            *seen <= MAX_ERRORS
        });
        if errors > MAX_ERRORS {
            let span = items.last().map(|d| d.span).unwrap_or_default();
            let more = format!("{} more errors are not shown", errors - MAX_ERRORS);
            let hint = "fix the first errors and try again";
            items.push(Diagnostic::new(Code::TooManyErrors, span, more).hint(hint));
        }
        Self { sources, items }
    }

    /// Returns all diagnostics, by file and location.
    #[must_use]
    pub fn items(&self) -> &[Diagnostic] {
        &self.items
    }

    /// Returns the source files.
    #[must_use]
    pub const fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// Whether at least one diagnostic is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.code.is_error())
    }

    /// Whether there are no diagnostics.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the diagnostics for JSON output.
    #[must_use]
    pub fn plain(&self) -> Vec<PlainDiagnostic> {
        self.items.iter().map(|d| self.plain_one(d)).collect()
    }

    fn plain_one(&self, d: &Diagnostic) -> PlainDiagnostic {
        let f = self.sources.file(d.span.file);
        let (start, end) = (f.position(d.span.start), f.position(d.span.end));
        PlainDiagnostic {
            code: d.code.as_str(),
            error: d.code.is_error(),
            message: d.message.clone(),
            file: f.name.clone(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            source: f.line(start.line).to_owned(),
            hint: d.hint.clone(),
            related: d.related.iter().map(|(s, what)| self.related(*s, what)).collect(),
        }
    }

    fn related(&self, span: Span, what: &str) -> RelatedLocation {
        let f = self.sources.file(span.file);
        let (start, end) = (f.position(span.start), f.position(span.end));
        RelatedLocation {
            file: f.name.clone(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            message: what.to_owned(),
        }
    }

    /// Renders message, location, source line and hint for people; with terminal colours if `colour`.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        self.items.iter().map(|d| renderer.render(&[self.group(d)]) + "\n\n").collect()
    }

    fn group<'a>(&'a self, d: &'a Diagnostic) -> annotate_snippets::Group<'a> {
        let level = if d.code.is_error() { Level::ERROR } else { Level::WARNING };
        let mut group =
            level.primary_title(&d.message).id(d.code.as_str()).element(self.snippet(d, d.span.file));
        let mut files: Vec<_> = d.related.iter().map(|(s, _)| s.file).filter(|f| *f != d.span.file).collect();
        files.dedup();
        for file in files {
            group = group.element(self.snippet(d, file));
        }
        match &d.hint {
            Some(h) => group.element(Level::HELP.message(h)),
            None => group,
        }
    }

    fn snippet<'a>(&'a self, d: &'a Diagnostic, file: u32) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let f = self.sources.file(file);
        let own = (file == d.span.file).then_some(d.span);
        let places = || own.into_iter().chain(d.related.iter().map(|(s, _)| *s)).filter(|s| s.file == file);
        // Only the annotated lines: the renderer scans the whole text that it receives, for each
        // diagnostic.
        let (from, first) = f.line_start(places().map(|s| s.start).min().unwrap_or(0));
        let to = f.line_end(places().map(|s| s.end).max().unwrap_or(0));
        let text = f.text.get(from..to).unwrap_or(&f.text);
        let within = |at: u32| (at as usize).saturating_sub(from).min(text.len());
        let range = |s: Span| within(s.start)..within(s.end);
        let mut s = Snippet::source(text).line_start(first).path(&f.name);
        if file == d.span.file {
            s = s.annotation(AnnotationKind::Primary.span(range(d.span)));
        }
        for (span, what) in d.related.iter().filter(|(r, _)| r.file == file) {
            s = s.annotation(AnnotationKind::Context.span(range(*span)).label(what));
        }
        s
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}

/// Collects diagnostics during a compilation.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    items: Vec<Diagnostic>,
    errors: usize,
}

impl Sink {
    pub(crate) fn add(&mut self, d: Diagnostic) {
        self.errors += usize::from(d.code.is_error());
        // Diagnostics beyond this limit are never shown; hostile input must not fill the memory.
        if self.items.len() < 50 * MAX_ERRORS {
            self.items.push(d);
        }
    }

    /// Adds a diagnostic without other locations.
    pub(crate) fn report(&mut self, code: Code, at: Span, text: impl Into<String>, hint: impl Into<String>) {
        self.add(Diagnostic::new(code, at, text).hint(hint));
    }

    /// Reports a construct that is valid P4 but that cannot be compiled yet.
    pub(crate) fn unsupported(&mut self, at: Span, what: &str) {
        let hint = "the program may be valid, but this compiler cannot translate it";
        self.report(Code::Unsupported, at, format!("{what} is not supported yet"), hint);
    }

    pub(crate) const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether there are more errors than a run reports, so that collecting details of another is
    /// pointless.
    pub(crate) const fn is_full(&self) -> bool {
        self.errors > MAX_ERRORS
    }

    pub(crate) fn into_items(self) -> Vec<Diagnostic> {
        self.items
    }

    /// Returns the diagnostics for the caller of the compiler.
    pub(crate) fn finish(self, sources: SourceMap) -> Diagnostics {
        Diagnostics::new(sources, self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = std::collections::HashSet::new();
        for c in Code::ALL {
            assert!(seen.insert(c.as_str()), "{c} twice");
            assert!(c.as_str().len() == 5 && !c.title().is_empty());
        }
    }

    #[test]
    fn rendering_shows_line_and_hint() {
        let mut m = SourceMap::default();
        let file = m.add("x.p4", "a\nbb cc\n".to_owned());
        let d = Diagnostic::new(Code::Syntax, Span { file, start: 5, end: 7 }, "what is cc").hint("write dd");
        let all = Diagnostics::new(m, vec![d.clone(), d]);
        let text = all.render(false);
        assert_eq!(all.items().len(), 1, "repetitions are dropped");
        for part in ["error[E0201]: what is cc", "x.p4:2:4", "bb cc", "help: write dd"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let p = &all.plain()[0];
        assert_eq!((p.line, p.column, p.source.as_str()), (2, 4, "bb cc"));
    }
}
