//! A chain of rules that is being written.

use serde_json::{Value, json};

use crate::Reason;

/// The statements of each rule of a chain. A frame meets the rules in order.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    label: &'a str,
    rules: Vec<Value>,
}

impl<'a> Chain<'a> {
    pub(super) const fn new(label: &'a str) -> Self {
        Self { label, rules: Vec::new() }
    }

    pub(super) fn rules(self) -> Vec<Value> {
        self.rules
    }

    /// Counts what matches, which then goes on.
    pub(super) fn count(&mut self, counter: &str) {
        let counter = self.counter(counter);
        self.rule([], [counter]);
    }

    /// Drops what matches all of these, for a reason.
    pub(super) fn drop(&mut self, reason: Reason, matches: impl IntoIterator<Item = Value>) {
        let counter = self.counter(reason.name());
        self.rule(matches, [counter, json!({"drop": null})]);
    }

    /// Lets what matches go on to the check of its destination.
    pub(super) fn pass(&mut self, matches: impl IntoIterator<Item = Value>) {
        let target = destinations(self.label);
        self.rule(matches, [json!({"goto": {"target": target}})]);
    }

    /// Accepts what matches, after a statement.
    pub(super) fn accept(&mut self, matches: impl IntoIterator<Item = Value>, statement: Value) {
        self.rule(matches, [statement, json!({"accept": null})]);
    }

    pub(super) fn counter(&self, name: &str) -> Value {
        json!({"counter": counter(self.label, name)})
    }

    fn rule<const N: usize>(&mut self, matches: impl IntoIterator<Item = Value>, statements: [Value; N]) {
        self.rules.push(matches.into_iter().chain(statements).collect());
    }
}

/// Returns the name of a port's counter.
pub(super) fn counter(label: &str, name: &str) -> String {
    format!("{label}.{name}")
}

/// Returns the name of the chain for what a port receives.
pub(super) fn incoming(label: &str) -> String {
    format!("in-{label}")
}

/// Returns the name of the chain for the destinations of what a port receives.
pub(super) fn destinations(label: &str) -> String {
    format!("to-{label}")
}

/// Returns the name of the chain for what leaves through a port.
pub(super) fn outgoing(label: &str) -> String {
    format!("out-{label}")
}
