//! Entries as people and scripts write them, and their encoding for the maps of a program.

use crate::described::Control;
use crate::model::{
    ActionFacts, EntryError, GroupFacts, KeyFacts, LookupKind, Match, TableFacts, ValueSetFacts,
};
use crate::names::{self, NameError};
use crate::value::{self, ValueError};
use num_bigint::BigUint;
use serde::{Deserialize, Serialize};

/// A value of a key or parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The name, in full or its last parts; `None`: by place in the program's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The value: for a key, as [`value::key_match`] parses it; for a parameter, as [`value::value`].
    pub value: String,
}

impl Named {
    /// Parses `NAME=VALUE`, or `VALUE` alone.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, value)) => Self { name: Some(name.to_owned()), value: value.to_owned() },
            None => Self { name: None, value: text.to_owned() },
        }
    }
}

/// An action with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionText {
    /// Its name, in full or its last parts.
    pub name: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Vec<Named>,
}

/// The packets that an entry of a table matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchText {
    /// The keys. A key that is left out matches every value, if its kind allows that.
    pub keys: Vec<Named>,
    /// The priority, where several entries may match; the greatest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

/// The reason why a text is no entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryTextError {
    /// A name is unknown or ambiguous.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value has no valid form.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The entry does not fit its table.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A name is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// There are more values than names.
    #[error("{what} takes {expected} values: {names}")]
    TooMany {
        /// The table or action.
        what: String,
        /// The most values.
        expected: usize,
        /// Names of the keys or parameters.
        names: String,
    },
    /// A value is missing.
    #[error("{what} needs a value of {name}")]
    Missing {
        /// The table or action.
        what: String,
        /// Name of the key or parameter.
        name: String,
    },
    /// The entries never change.
    #[error("the entries of {0} are constant: its program declares them")]
    Constant(String),
    /// The default action never changes.
    #[error("the default action of {0} is constant")]
    ConstantDefault(String),
    /// Several entries may match a packet, and none comes first.
    #[error("several entries of {0} may match a packet: give a priority, the greatest wins")]
    NoPriority(String),
    /// The table has no groups of actions.
    #[error("{0} has no action selector, so its entries cannot refer to groups")]
    NoGroups(String),
    /// A group of actions has no valid number.
    #[error("write the number of a group, at most 4294967295, not `{0}`")]
    Group(String),
    /// The table has no priorities.
    #[error("{0} has no priorities: at most one of its entries matches best")]
    Priority(String),
    /// The action is the table's default action only.
    #[error("{action} may only be the default action of {table}")]
    DefaultOnly {
        /// The action.
        action: String,
        /// The table.
        table: String,
    },
}

/// The name of the action of entries that refer to a group of actions; its parameter is the group's number.
pub const GROUP_ACTION: &str = "$group";

impl Control {
    /// Returns the parser value set with this name.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn value_set(&self, name: &str) -> Result<&ValueSetFacts, NameError> {
        let all = self.value_sets.iter().map(|s| s.name.as_str());
        names::find("value set", name, false, all).map(|at| &self.value_sets[at])
    }

    /// Returns the table with this name.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn table(&self, name: &str) -> Result<&TableFacts, NameError> {
        let all = self.tables.iter().map(|t| t.name.as_str());
        names::find("table", name, false, all).map(|at| &self.tables[at])
    }
}

impl TableFacts {
    /// Returns the symbol of the map of the entries.
    ///
    /// # Errors
    /// The entries never change.
    pub fn entry_map(&self) -> Result<&str, EntryTextError> {
        let map = self.map.as_deref().filter(|_| self.mutable);
        map.ok_or_else(|| EntryTextError::Constant(self.name.clone()))
    }

    /// Returns the symbol of the map of the default action, whose one key is 0.
    ///
    /// # Errors
    /// The default action never changes.
    pub fn default_action_map(&self) -> Result<&str, EntryTextError> {
        self.default_map.as_deref().ok_or_else(|| EntryTextError::ConstantDefault(self.name.clone()))
    }

    /// Encodes what an entry matches as a key of its map.
    ///
    /// # Errors
    /// [`EntryTextError`].
    pub fn key_of(&self, text: &MatchText) -> Result<Vec<u8>, EntryTextError> {
        let matches = matches(&self.name, &self.keys, &text.keys)?;
        Ok(self.entry_key(&matches, self.priority(text.priority, &matches)?)?)
    }

    /// Returns the priority of an entry: the given one; where it follows from the prefixes, the longer wins.
    fn priority(&self, given: Option<u32>, matches: &[Match]) -> Result<u32, EntryTextError> {
        if self.lookup != LookupKind::Rules {
            return given.map_or(Ok(0), |_| Err(EntryTextError::Priority(self.name.clone())));
        }
        let ordered = self.keys.iter().all(|k| matches!(k.kind, "exact" | "lpm"));
        let bits = |m: &Match| if let Match::Prefix(_, bits) = m { *bits } else { 0 };
        let longest = ordered.then(|| matches.iter().map(bits).sum());
        given.or(longest).ok_or_else(|| EntryTextError::NoPriority(self.name.clone()))
    }

    /// Encodes an action, of an entry or as the default one, as a value of the table's maps.
    ///
    /// # Errors
    /// [`EntryTextError`].
    pub fn value_of(&self, text: &ActionText, is_default: bool) -> Result<Vec<u8>, EntryTextError> {
        if text.name == GROUP_ACTION {
            return self.group_of(&text.params);
        }
        let names = self.actions.iter().map(|a| a.name.as_str());
        let index = names::find("action", &text.name, false, names)?;
        let action = &self.actions[index];
        if action.default_only && !is_default {
            let (action, table) = (action.name.clone(), self.name.clone());
            return Err(EntryTextError::DefaultOnly { action, table });
        }
        Ok(self.action_value(index, &data(action, &text.params)?)?)
    }

    fn group_of(&self, params: &[Named]) -> Result<Vec<u8>, EntryTextError> {
        self.group_maps()?;
        let text = params.iter().map(|p| p.value.as_str()).collect::<Vec<_>>().join(" ");
        let number = text.parse().map_err(|_| EntryTextError::Group(text))?;
        Ok(self.group_value(number))
    }

    /// Returns the maps of the table's groups.
    ///
    /// # Errors
    /// The table has no action selector.
    pub fn group_maps(&self) -> Result<&GroupFacts, EntryTextError> {
        self.groups.as_ref().ok_or_else(|| EntryTextError::NoGroups(self.name.clone()))
    }
}

impl ValueSetFacts {
    /// Encodes a member as key and value of the set's map.
    ///
    /// # Errors
    /// [`EntryTextError`].
    pub fn member_of(&self, values: &[Named]) -> Result<(Vec<u8>, Vec<u8>), EntryTextError> {
        let (key, value) = self.member(&matches(&self.name, &self.keys, values)?)?;
        Ok((key, value.to_vec()))
    }
}

/// Returns the matches of keys. One that is left out matches every value, if its kind allows that.
fn matches(what: &str, keys: &[KeyFacts], given: &[Named]) -> Result<Vec<Match>, EntryTextError> {
    let given = place(what, "key", given, keys.iter().map(|k| k.name.as_str()))?;
    let missing = |name: &str| EntryTextError::Missing { what: what.to_owned(), name: name.to_owned() };
    let matched = |(k, text): (&KeyFacts, Option<String>)| match text {
        Some(text) => Ok(value::key_match(k, &text)?),
        None if k.kind == "exact" => Err(missing(&k.name)),
        None => Ok(Match::Any),
    };
    keys.iter().zip(given).map(matched).collect()
}

/// Returns the values of an action's parameters.
fn data(action: &ActionFacts, given: &[Named]) -> Result<Vec<BigUint>, EntryTextError> {
    let names = action.params.iter().map(|p| p.name.as_str());
    let placed = place(&action.name, "parameter", given, names)?;
    let missing = |name: &str| EntryTextError::Missing { what: action.name.clone(), name: name.to_owned() };
    let values = action
        .params
        .iter()
        .zip(placed)
        .map(|(p, text)| Ok(value::value(&p.name, p.width, &text.ok_or_else(|| missing(&p.name))?)?));
    values.collect()
}

/// Returns the given values in the order of the names: those with a name first, the others in sequence.
pub(crate) fn place<'n>(
    what: &str,
    kind: &'static str,
    given: &[Named],
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<Vec<Option<String>>, EntryTextError> {
    let mut placed: Vec<Option<String>> = names.clone().map(|_| None).collect();
    for Named { name, value } in given {
        let Some(name) = name else { continue };
        let at = names::find(kind, name, false, names.clone())?;
        if placed[at].replace(value.clone()).is_some() {
            return Err(EntryTextError::Twice(names.clone().nth(at).unwrap_or_default().to_owned()));
        }
    }
    for Named { value, .. } in given.iter().filter(|g| g.name.is_none()) {
        let Some(free) = placed.iter_mut().find(|p| p.is_none()) else {
            let (expected, names) = (placed.len(), names.collect::<Vec<_>>().join(", "));
            return Err(EntryTextError::TooMany { what: what.to_owned(), expected, names });
        };
        *free = Some(value.clone());
    }
    Ok(placed)
}
