//! Counters, meters, registers, action profiles: instances of externs that a controller can access.

use super::ids::Prefix;
use super::message::{FieldValue, Message};
use super::walk::{BoundArg, ExternInstance, TableInstance};
use super::{P4InfoBuilder, names};
use crate::hir::CtorArg;
use crate::types::Type;

/// Returns the kind of an extern's instances for a controller; `None` if a controller cannot access them.
pub(super) fn prefix(ty: &Type) -> Option<Prefix> {
    let Type::Extern(e) = ty else { return None };
    match &*e.name {
        "counter" => Some(Prefix::Counter),
        "direct_counter" => Some(Prefix::DirectCounter),
        "meter" => Some(Prefix::Meter),
        "direct_meter" => Some(Prefix::DirectMeter),
        "register" | "Register" => Some(Prefix::Register),
        "action_profile" | "action_selector" => Some(Prefix::ActionProfile),
        _ => None,
    }
}

/// Annotations that have their own fields in `ActionProfile`.
const PROFILE: [&str; 3] = ["max_group_size", "selector_size_semantics", "max_member_weight"];

impl P4InfoBuilder<'_> {
    fn of(&self, wanted: Prefix) -> impl Iterator<Item = &ExternInstance> {
        self.found.externs.iter().filter(move |e| prefix(&e.instance.ty) == Some(wanted))
    }

    /// Adds all fields between actions and controller headers.
    pub(super) fn externs(&self, m: Message) -> Message {
        let array = |e: &ExternInstance, prefix| {
            let m = self.start(e, prefix, &[]).message(2, "spec", unit(e.args.get(1)));
            self.index_type(m.number(3, "size", size(e.args.first())), e, 0)
        };
        m.repeated(4, "action_profiles", self.of(Prefix::ActionProfile).map(|e| self.profile(e)))
            .repeated(5, "counters", self.of(Prefix::Counter).map(|e| array(e, Prefix::Counter)))
            .repeated(6, "direct_counters", self.direct(Prefix::DirectCounter, "counters"))
            .repeated(7, "meters", self.of(Prefix::Meter).map(|e| array(e, Prefix::Meter)))
            .repeated(8, "direct_meters", self.direct(Prefix::DirectMeter, "meters"))
    }

    fn start(&self, e: &ExternInstance, prefix: Prefix, excluded: &[&str]) -> Message {
        let annotations = self.annotation_index.at(e.annotated.0, &e.annotated.1);
        let preamble = annotations.add_all(names(self.ids, prefix, &e.name), excluded);
        Message::default().message(1, "preamble", preamble)
    }

    /// Adds the name of the index type, if the author declared it.
    fn index_type(&self, m: Message, e: &ExternInstance, argument: usize) -> Message {
        let Type::Extern(x) = &e.instance.ty else { return m };
        let Some(Type::New(n)) = x.args.get(argument) else { return m };
        let name = self.annotation_index.of_type(&n.name).full_name("", &n.name);
        m.message(4, "index_type_name", Message::named(&name))
    }

    /// Returns the direct resources that tables refer to by a property.
    fn direct(&self, wanted: Prefix, property: &'static str) -> Vec<Message> {
        let one = |e: &ExternInstance| {
            let t = self.found.tables.iter().find(|t| t.refers(property, &e.name))?;
            let m = self.start(e, wanted, &[]).message(2, "spec", unit(e.args.first()));
            Some(m.number(3, "direct_table_id", self.ids.of(Prefix::Table, &t.name)))
        };
        self.of(wanted).filter_map(one).collect()
    }

    /// Builds `ActionProfile`.
    fn profile(&self, e: &ExternInstance) -> Message {
        let selects = matches!(&e.instance.ty, Type::Extern(x) if &*x.name == "action_selector");
        let annotations = self.annotation_index.at(e.annotated.0, &e.annotated.1);
        let uses = |t: &&TableInstance| t.refers("implementation", &e.name);
        let users = self.found.tables.iter().filter(uses).map(|t| self.ids.of(Prefix::Table, &t.name));
        let m = self
            .start(e, Prefix::ActionProfile, &PROFILE)
            .numbers(2, "table_ids", users)
            .with(3, "with_selector", FieldValue::Bool(selects))
            .number(4, "size", size(e.args.get(usize::from(selects))));
        if !selects {
            return m;
        }
        let m = m.number(5, "max_group_size", annotations.number("max_group_size").unwrap_or(0));
        match annotations.text("selector_size_semantics") {
            Some("sum_of_weights") => m.message(6, "sum_of_weights", Message::default()),
            Some("sum_of_members") => {
                let most = annotations.number("max_member_weight").map(|n| FieldValue::Signed(n.into()));
                let weight = |m: Message, n| m.present(1, "max_member_weight", n);
                m.message(7, "sum_of_members", most.into_iter().fold(Message::default(), weight))
            }
            _ => m,
        }
    }

    /// Builds the `Register`s.
    pub(super) fn registers(&mut self, m: Message) -> Message {
        let found = self.found;
        let is_register = |e: &&ExternInstance| prefix(&e.instance.ty) == Some(Prefix::Register);
        let mut out = Vec::new();
        for e in found.externs.iter().filter(is_register) {
            let Type::Extern(x) = &e.instance.ty else { continue };
            let spec = x.args.first().map(|t| self.types.spec(t)).unwrap_or_default();
            let m = self.start(e, Prefix::Register, &[]).message(2, "type_spec", spec);
            out.push(self.index_type(m.number(3, "size", size(e.args.first())), e, 1));
        }
        m.repeated(11, "registers", out)
    }
}

fn size(a: Option<&Option<BoundArg>>) -> u32 {
    match a {
        Some(Some(BoundArg::Value(e))) => e.as_const().and_then(crate::constant::small).unwrap_or(0),
        _ => 0,
    }
}

/// Builds `CounterSpec` or `MeterSpec`.
fn unit(a: Option<&Option<BoundArg>>) -> Message {
    use p4shield_tables::model::Unit;
    let unit = match a {
        Some(Some(BoundArg::Value(e))) => crate::lower::unit(&CtorArg::Value(e.clone())),
        _ => Unit::Both,
    };
    let value = match unit {
        Unit::Bytes => FieldValue::Enum("BYTES", 1),
        Unit::Packets => FieldValue::Enum("PACKETS", 2),
        Unit::Both => FieldValue::Enum("BOTH", 3),
    };
    Message::default().with(1, "unit", value)
}
