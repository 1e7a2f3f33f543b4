//! Items that the source may have in another order than their declaration: named arguments and the fields of
//! struct expressions.

use std::ops::Deref;

/// Items in the order of the parameters or fields that they belong to, which also know their order in the
/// source: expressions with effects are evaluated "left-to-right as they appear in the source program".
#[derive(Clone, Debug)]
pub(crate) struct Ordered<T> {
    items: Vec<T>,
    /// Indices of the items in the order of the source; those that it omits are last.
    written: Vec<usize>,
}

impl<T> Ordered<T> {
    /// Orders items by the place of each in the source, `None` for omitted ones.
    pub(crate) fn by_place(placed: Vec<(Option<usize>, T)>) -> Self {
        let mut written: Vec<usize> = (0..placed.len()).collect();
        written.sort_by_key(|i| placed[*i].0.unwrap_or(usize::MAX));
        Self { items: placed.into_iter().map(|(_, item)| item).collect(), written }
    }

    /// Returns the index of each item and the item, in the order of the source.
    pub(crate) fn as_written(&self) -> impl Iterator<Item = (usize, &T)> {
        self.written.iter().map(|i| (*i, &self.items[*i]))
    }

    /// Converts each item; they are visited in the order of their declaration.
    pub(crate) fn map<U>(self, f: impl FnMut(T) -> U) -> Ordered<U> {
        Ordered { items: self.items.into_iter().map(f).collect(), written: self.written }
    }

    /// Returns the items in the order of their declaration, each with its place in the source.
    pub(crate) fn into_placed(self) -> Vec<(Option<usize>, T)> {
        let mut places = vec![None; self.items.len()];
        self.written.iter().enumerate().for_each(|(place, i)| places[*i] = Some(place));
        places.into_iter().zip(self.items).collect()
    }

    /// Evaluates each item in the order of the source; returns the results in the order of their declaration.
    pub(crate) fn evaluate<U>(&self, mut f: impl FnMut(&T) -> U) -> Vec<U> {
        let mut results: Vec<(usize, U)> = self.as_written().map(|(i, item)| (i, f(item))).collect();
        results.sort_by_key(|(i, _)| *i);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Items whose order in the source is that of their declaration.
impl<T> From<Vec<T>> for Ordered<T> {
    fn from(items: Vec<T>) -> Self {
        let written = (0..items.len()).collect();
        Self { items, written }
    }
}

impl<T> Deref for Ordered<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}
