//! Source files and places in them.
//!
//! Every token, tree node and instruction carries a [`Span`], so that whatever goes wrong, at any stage and in any
//! included file, can be shown where the author wrote it.

/// A file of a [`SourceMap`], by number.
pub type FileId = u32;

/// A range of bytes in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// First byte behind it.
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`; `self` alone if they lie in different files.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file == other.file {
            Self { end: other.end.max(self.end), start: self.start.min(other.start), ..self }
        } else {
            self
        }
    }

    /// The empty place right behind `self`.
    #[must_use]
    pub const fn after(self) -> Self {
        Self { start: self.end, ..self }
    }
}

/// A line and a column, both from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// One file's name and text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name as given by the caller or by the `#include`.
    pub name: String,
    /// The whole text.
    pub text: String,
    line_starts: Vec<u32>,
}

impl SourceFile {
    fn new(name: String, text: String) -> Self {
        let mut line_starts = vec![0];
        line_starts.extend(text.bytes().zip(1..).filter(|(b, _)| *b == b'\n').map(|(_, i)| i));
        Self { name, text, line_starts }
    }

    /// The line (from 0) that holds the byte at `offset`.
    fn line_index(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|s| *s <= offset).saturating_sub(1)
    }

    /// Where `offset` is, for people.
    #[must_use]
    pub fn position(&self, offset: u32) -> Position {
        let line = self.line_index(offset);
        let start = self.line_starts[line] as usize;
        let end = (offset as usize).min(self.text.len());
        let column = self.text.get(start..end).map_or(1, |s| s.chars().count() + 1);
        Position { line: line as u32 + 1, column: column as u32 }
    }

    /// The first byte of the line that holds the byte at `offset`, and the line's number from 1.
    pub(crate) fn line_start(&self, offset: u32) -> (usize, usize) {
        let i = self.line_index(offset);
        (self.line_starts[i] as usize, i + 1)
    }

    /// The first byte behind the line that holds the byte at `offset`.
    pub(crate) fn line_end(&self, offset: u32) -> usize {
        let next = self.line_starts.get(self.line_index(offset) + 1);
        next.map_or(self.text.len(), |s| *s as usize)
    }

    /// The text of the line (from 1), without its end.
    #[must_use]
    pub fn line(&self, line: u32) -> &str {
        let i = line.saturating_sub(1) as usize;
        let start = self.line_starts.get(i).map_or(self.text.len(), |s| *s as usize);
        let end = self.line_starts.get(i + 1).map_or(self.text.len(), |s| *s as usize);
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// All files that took part in one compilation.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// Adds a file and returns its number. A file that was added before under the same name is not added twice.
    pub fn add(&mut self, name: &str, text: String) -> FileId {
        if let Some(i) = self.files.iter().position(|f| f.name == name && f.text == text) {
            return i as FileId;
        }
        self.files.push(SourceFile::new(name.to_owned(), text));
        self.files.len() as FileId - 1
    }

    /// All files, in the order of their numbers.
    #[must_use]
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The file of this number.
    ///
    /// # Panics
    /// If the number is not of this map, which is a bug of the compiler.
    #[must_use]
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id as usize]
    }

    /// File name and position of the start of `span`.
    #[must_use]
    pub fn locate(&self, span: Span) -> (&str, Position) {
        let f = self.file(span.file);
        (&f.name, f.position(span.start))
    }

    /// The text of `span`.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let mut m = SourceMap::default();
        let f = m.add("a.p4", "é x\ny\n".to_owned());
        let at = |start| m.locate(Span { file: f, start, end: start }).1;
        assert_eq!(at(0), Position { line: 1, column: 1 });
        assert_eq!(at(3), Position { line: 1, column: 3 });
        assert_eq!(at(5), Position { line: 2, column: 1 });
        assert_eq!(at(99), Position { line: 3, column: 1 });
        assert_eq!(m.file(f).line(1), "é x");
        assert_eq!(m.file(f).line(9), "");
    }

    #[test]
    fn spans_join_only_within_a_file() {
        let a = Span { file: 0, start: 1, end: 2 };
        assert_eq!(a.to(Span { file: 0, start: 5, end: 7 }), Span { file: 0, start: 1, end: 7 });
        assert_eq!(a.to(Span { file: 1, start: 5, end: 7 }), a);
        assert_eq!(a.after(), Span { file: 0, start: 2, end: 2 });
    }
}
