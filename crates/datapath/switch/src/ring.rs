//! A queue of small values, in memory that is allocated once.

/// Values in their order.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    /// A power of two of places, or none.
    slots: Box<[T]>,
    /// The number of the first value, whose place is this modulo the number of places.
    first: usize,
    len: usize,
}

impl<T: Copy + Default> Ring<T> {
    /// Makes room for at least so many values.
    pub(crate) fn with_room(most: usize) -> Self {
        let room = if most == 0 { 0 } else { most.next_power_of_two() };
        Self { slots: vec![T::default(); room].into(), first: 0, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    const fn place(&self, number: usize) -> usize {
        self.first.wrapping_add(number) & self.slots.len().wrapping_sub(1)
    }

    /// Appends a value if there is room.
    // Inlined: a call would pass the value in memory, written in small parts and read as a whole at once,
    // for which a processor waits until all stores before have reached the cache.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        let place = self.place(self.len);
        if self.len < self.slots.len() {
            self.slots[place] = value;
            self.len += 1;
        }
    }

    /// Removes the first value, and returns it.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.get(0)?;
        (self.first, self.len) = (self.first.wrapping_add(1), self.len - 1);
        Some(first)
    }

    /// Returns the value behind so many others.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<T> {
        if number < self.len { self.slots.get(self.place(number)).copied() } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len).filter_map(|number| self.get(number))
    }

    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn a_ring_is_a_queue_with_a_bound(
            room in 0..9_usize,
            steps in prop::collection::vec(0..5_u8, 0..60),
        ) {
            let (mut ring, mut model) = (Ring::with_room(room), VecDeque::new());
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(ring.pop(), model.pop_front()),
                    1 if n % 7 == 0 => {
                        ring.clear();
                        model.clear();
                    }
                    _ if !ring.is_full() => {
                        ring.push(n);
                        model.push_back(n);
                    }
                    _ => ring.push(n),
                }
                prop_assert!(ring.is_full() || ring.len() < room.next_power_of_two());
                prop_assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(ring.iter().eq(model.iter().copied()));
            }
        }
    }
}
