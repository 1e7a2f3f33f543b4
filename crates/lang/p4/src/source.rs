//! Source files and locations in them.
//!
//! Every token, tree node and instruction carries a [`Span`], so that every stage can report errors
//! at the location in the source, in included files too.

/// The number of a file in a [`SourceMap`].
pub type FileId = u32;

/// A range of bytes in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the range from the start of `self` to the end of `other`; `self` if they lie in
    /// different files.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file == other.file {
            Self { end: other.end.max(self.end), start: self.start.min(other.start), ..self }
        } else {
            self
        }
    }

    /// Returns the empty range right behind `self`.
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
    /// The name that the caller or the `#include` gave.
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

    /// Returns the line (from 0) that contains the byte at `offset`.
    fn line_index(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|s| *s <= offset).saturating_sub(1)
    }

    /// Returns the line and column of `offset`.
    #[must_use]
    pub fn position(&self, offset: u32) -> Position {
        let line = self.line_index(offset);
        let start = self.line_starts[line] as usize;
        let end = (offset as usize).min(self.text.len());
        let column = self.text.get(start..end).map_or(1, |s| s.chars().count() + 1);
        Position { line: line as u32 + 1, column: column as u32 }
    }

    /// Returns the offset of the line that contains the byte at `offset`, and its number from 1.
    pub(crate) fn line_start(&self, offset: u32) -> (usize, usize) {
        let i = self.line_index(offset);
        (self.line_starts[i] as usize, i + 1)
    }

    /// Returns the offset behind the line that contains the byte at `offset`.
    pub(crate) fn line_end(&self, offset: u32) -> usize {
        let next = self.line_starts.get(self.line_index(offset) + 1);
        next.map_or(self.text.len(), |s| *s as usize)
    }

    /// Returns the text of a line (from 1), without its line end.
    #[must_use]
    pub fn line(&self, line: u32) -> &str {
        let i = line.saturating_sub(1) as usize;
        let start = self.line_starts.get(i).map_or(self.text.len(), |s| *s as usize);
        let end = self.line_starts.get(i + 1).map_or(self.text.len(), |s| *s as usize);
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// All files of one compilation.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// Adds a file and returns its number. Returns the old number if the same name and text were
    /// added before.
    pub fn add(&mut self, name: &str, text: String) -> FileId {
        if let Some(i) = self.files.iter().position(|f| f.name == name && f.text == text) {
            return i as FileId;
        }
        self.files.push(SourceFile::new(name.to_owned(), text));
        self.files.len() as FileId - 1
    }

    /// Returns all files, in the order of their numbers.
    #[must_use]
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns the file of this number.
    ///
    /// # Panics
    /// If the map has no such file, which is a compiler bug.
    #[must_use]
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id as usize]
    }

    /// Returns the file name and the position of the start of `span`.
    #[must_use]
    pub fn locate(&self, span: Span) -> (&str, Position) {
        let f = self.file(span.file);
        (&f.name, f.position(span.start))
    }

    /// Returns the text of `span`.
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
