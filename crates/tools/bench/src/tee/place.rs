//! Where a row's program runs.

/// The place of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its name: see [`RowName`].
    pub(super) name: &'static str,
    /// The words behind `--placement` in a row that runs the product.
    pub(super) words: &'static [&'static str],
    /// True if the program's secret part is a function in C.
    pub(super) calls: bool,
    /// The row beside this one whose maximum is that of the whole.
    pub(super) compared_with: Option<&'static str>,
}

/// The paper's program, all of it in the switch's process.
pub(super) const BARE: Place = Place { name: "bare", words: &["inline"], calls: false, compared_with: None };
/// The same with its secret part as a function in C, linked into the program.
pub(super) const INLINE: Place =
    Place { name: "inline", words: &["inline"], calls: true, compared_with: Some(BARE.name) };
