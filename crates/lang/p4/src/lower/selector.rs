//! Action selectors: an entry may refer to a group instead of an action. A hash over the table's
//! `selector` keys chooses the group's member that acts on a packet.

use super::Lowering;
use crate::hir::{CtorArg, MatchKind, Table};
use crate::ir::{BinOp, Block, Cc, Map, MapId, Op, Opnd, Ty};
use crate::lexer::Name;
use crate::types::Type;
use p4shield_abi::map::{MapDefinition, TYPE_HASH};
use p4shield_tables::model::{GROUP, GroupFacts, TableFacts};

/// Default capacity of a selector in members.
const DEFAULT_MEMBERS: u32 = 1024;

/// The bits of a table's selector keys, and their number.
pub(super) type SelectorBits = (Vec<Opnd>, u32);

/// How a table's entries choose among the members of groups.
#[derive(Clone, Copy)]
pub(super) struct ActionSelector {
    groups: MapId,
    members: MapId,
    /// The engine's number of the hash algorithm.
    algorithm: u32,
    /// Number of hash bits in use.
    width: u8,
}

impl Lowering<'_> {
    /// Creates the maps of groups and their members, if the table has a selector and keys for it.
    pub(super) fn plan_selector(
        &mut self,
        t: &Table,
        facts: &mut TableFacts,
        path: &[Name],
    ) -> Option<ActionSelector> {
        let size = facts.profile.as_ref().filter(|p| p.selector)?.size;
        t.keys.iter().find(|k| k.kind == MatchKind::Selector)?;
        let inst = self.hir.instances[t.instance_property("implementation")?.0 as usize].clone();
        let algorithm = inst.args.first().and_then(algorithm_of)?;
        let width =
            inst.args.get(2).and_then(|a| self.ctor_number(a)).as_ref().and_then(crate::constant::small);
        let (last, outer) = path.split_last()?;
        let map = |l: &mut Self, what: &str, key_size, value_size| {
            let name = l.map_name(outer, &format!("{last}_{what}"));
            let max_entries = if size == 0 { DEFAULT_MEMBERS } else { size };
            let definition =
                MapDefinition { map_type: TYPE_HASH, key_size, value_size, max_entries, flags: 0 };
            (name.clone(), l.add_map(Map { name, definition, entries: Vec::new() }))
        };
        let (groups_name, groups) = map(self, "groups", 4, 8);
        let (members_name, members) = map(self, "members", 8, facts.value_size);
        facts.groups = Some(GroupFacts { groups: groups_name, members: members_name });
        Some(ActionSelector { groups, members, algorithm, width: width.unwrap_or(64).clamp(1, 64) as u8 })
    }

    /// Appends a selector key to the bits of those before it.
    pub(super) fn joined(&mut self, (bits, width): SelectorBits, key: &[Opnd], ty: &Type) -> SelectorBits {
        let more = ty.scalar_width().unwrap_or(0);
        (self.concat(&bits, width, key, more), width + more)
    }

    /// Returns where the action of the entry at `base` is stored: there, or at a member of the
    /// entry's group. Jumps to `end` if the group has no member.
    pub(super) fn chosen_member(
        &mut self,
        s: ActionSelector,
        base: Opnd,
        bits: &SelectorBits,
        end: Block,
    ) -> Opnd {
        let word = |l: &mut Self, base, offset| l.b.emit(Op::LoadMap { base, offset, bytes: 4 }, Ty::Int(32));
        let chosen = self.b.slot(Ty::MapValue);
        self.b.write(chosen, base);
        let number = word(self, base, 0);
        let (group, done) = (self.b.new_block("group"), self.b.new_block("member"));
        let is_group = self.b.cmp(Cc::Eq, number, Opnd::C(u64::from(GROUP)), 32);
        self.b.branch(is_group, group, done);
        self.b.switch_to(group);
        let id = word(self, base, 4);
        let found = self.found(s.groups, vec![(0, 4, id)], end);
        let count = word(self, found, 0);
        let (some, choose) = (self.b.cmp(Cc::Ne, count, Opnd::C(0), 32), self.b.new_block("choose"));
        self.b.branch(some, choose, end);
        self.b.switch_to(choose);
        let hash = self.hash_bits(&bits.0, bits.1, s.algorithm);
        let hash = self.b.truncate(hash, s.width);
        let index = self.b.bin(BinOp::Mod, hash, count, 64);
        let index = self.b.truncate(index, 32);
        let member = self.found(s.members, vec![(0, 4, id), (4, 4, index)], end);
        self.b.write(chosen, member);
        self.b.jump(done);
        self.b.switch_to(done);
        self.b.read(chosen)
    }

    /// Looks up a map; jumps to `end` if it has no value for the key.
    fn found(&mut self, map: MapId, key: Vec<crate::ir::KeyPart>, end: Block) -> Opnd {
        let base = self.b.lookup(map, key);
        let there = self.b.cmp(Cc::Ne, base, Opnd::C(0), 64);
        let go_on = self.b.new_block("found");
        self.b.branch(there, go_on, end);
        self.b.switch_to(go_on);
        base
    }
}

/// Returns the engine's number of the hash algorithm that a constructor argument names.
fn algorithm_of(a: &CtorArg) -> Option<u32> {
    let CtorArg::Value(e) = a else { return None };
    super::hash::algorithm_number(e.member_name()?)
}
