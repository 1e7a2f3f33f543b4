//! The names of the program that runs, which a shell completes.

use crate::api::{ActionNames, NameKind, NamesView, ObjectNames};
use crate::desk::Desk;
use p4shield_tables::model::{ActionFacts, ArrayFacts, ArrayKind, DirectFacts, KeyFacts, TableFacts};

impl Desk {
    /// # Errors
    /// The program has no names.
    pub(crate) fn names(&self) -> Result<NamesView, String> {
        let program = self.program();
        let control = program.control()?;
        let sets = control.value_sets.iter().map(|s| ObjectNames {
            name: s.name.clone(),
            kind: NameKind::Values,
            keys: keys(&s.keys),
            actions: Vec::new(),
        });
        let tables = control.tables.iter().flat_map(table);
        Ok(NamesView { objects: tables.chain(control.arrays.iter().map(array)).chain(sets).collect() })
    }
}

/// Returns a table, and the counter and the meter in its entries.
fn table(t: &TableFacts) -> impl Iterator<Item = ObjectNames> {
    let keys = keys(&t.keys);
    let direct = |facts: &Option<DirectFacts>, kind| {
        facts.as_ref().map(|f| ObjectNames {
            name: f.name.clone(),
            kind,
            keys: keys.clone(),
            actions: Vec::new(),
        })
    };
    let cells = [direct(&t.counter, NameKind::Counter), direct(&t.meter, NameKind::Meter)];
    let actions = t.actions.iter().map(action).collect();
    let table = ObjectNames { name: t.name.clone(), kind: NameKind::Table, keys, actions };
    std::iter::once(table).chain(cells.into_iter().flatten())
}

fn array(a: &ArrayFacts) -> ObjectNames {
    let kind = match a.kind {
        ArrayKind::Register => NameKind::Register,
        ArrayKind::Counter { .. } => NameKind::Counter,
        ArrayKind::Meter { .. } => NameKind::Meter,
    };
    ObjectNames { name: a.name.clone(), kind, keys: Vec::new(), actions: Vec::new() }
}

fn keys(keys: &[KeyFacts]) -> Vec<String> {
    keys.iter().map(|k| k.name.clone()).collect()
}

fn action(a: &ActionFacts) -> ActionNames {
    ActionNames { name: a.name.clone(), params: a.params.iter().map(|p| p.name.clone()).collect() }
}
