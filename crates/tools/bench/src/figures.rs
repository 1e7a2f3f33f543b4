//! Figures over several rounds, and their ratios to the mode `plain`.

/// A figure that each round measures once.
pub(crate) trait Figure: Clone {
    /// Returns whether `other` measures the same in the same mode.
    fn same(&self, other: &Self) -> bool;
    /// Returns whether this is the counterpart of `other` in mode `plain`.
    fn is_plain_of(&self, other: &Self) -> bool;
    fn value(&self) -> f64;
    fn set_ratio(&mut self, ratio: f64);

    /// Returns the figure of all rounds: that of the round with the median value.
    fn of_rounds(mut rounds: Vec<Self>) -> Self {
        rounds.sort_by(|a, b| a.value().total_cmp(&b.value()));
        rounds.swap_remove(rounds.len() / 2)
    }
}

/// Implements [`Figure`] for a type with the fields `mode` and `ratio`, and with these keys.
macro_rules! figure {
    ($type:ty, $plain:expr, $value:expr, [$($key:ident),*] $(, $of_rounds:item)?) => {
        impl $crate::figures::Figure for $type {
            fn same(&self, other: &Self) -> bool {
                self.mode == other.mode $(&& self.$key == other.$key)*
            }
            fn is_plain_of(&self, other: &Self) -> bool {
                self.mode == $plain $(&& self.$key == other.$key)*
            }
            fn value(&self) -> f64 {
                let value: fn(&Self) -> f64 = $value;
                value(self)
            }
            fn set_ratio(&mut self, ratio: f64) {
                self.ratio = ratio;
            }
            $($of_rounds)?
        }
    };
}
pub(crate) use figure;

/// Returns each figure over all rounds, with its ratio to `plain`, in order of first appearance.
pub(crate) fn over_rounds<F: Figure>(mut samples: Vec<F>) -> Vec<F> {
    let mut all: Vec<F> = Vec::new();
    while let Some(first) = samples.first().cloned() {
        let (rounds, others): (Vec<F>, Vec<F>) = samples.into_iter().partition(|s| s.same(&first));
        all.push(F::of_rounds(rounds));
        samples = others;
    }
    let plain: Vec<F> = all.clone();
    for figure in &mut all {
        let base = plain.iter().find(|p| p.is_plain_of(figure)).map_or(f64::NAN, F::value);
        figure.set_ratio(figure.value() / base);
    }
    all
}
