//! The division of a `v1model` program between ingress and egress ([`p4shield_abi::division`]).
//!
//! A packet that needs nothing but one port passes both parts in one run, on code of its own: this module
//! adds what happens otherwise. Where ingress or egress asks for more, the code stores values in the block.
//! For each entry that continues, it loads them and goes to a second copy of egress.
//!
//! A block consists of the arguments and three areas of words of eight bytes: all values that egress may
//! need, and the metadata that a clone, or a packet that starts again, keeps. The code stores and loads
//! everything; `opt::block` then leaves out the words that no code loads.

use super::super::requests::{QUEUE_FIELDS, Request, kind_of};
use super::super::storage::{HeaderStore, Storage, headers};
use super::super::words::{Word, words_of};
use super::{DROP_PORT, Lowering};
use crate::diagnostics::Code;
use crate::ir::{BinOp, Block, Cc, Op, Opnd, Ty};
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::context::offset;
use p4shield_abi::division::{BLOCK_HEADER_SIZE, BLOCK_MAP, argument, entry, request};
use p4shield_abi::object::need;
use std::rc::Rc;

/// `instance_type` of packets, as in the reference switch.
mod instance {
    pub(super) const NORMAL: u64 = 0;
    pub(super) const CLONE: u64 = 1;
    pub(super) const CLONE_EGRESS: u64 = 2;
    pub(super) const RECIRCULATED: u64 = 4;
    pub(super) const REPLICA: u64 = 5;
    pub(super) const RESUBMITTED: u64 = 6;
}

/// The values that the block carries, and the way to the code that loads them.
pub(super) struct Division {
    /// Headers and the position in the packet.
    headers: Vec<Word>,
    /// User and standard metadata.
    metadata: Vec<Word>,
    /// Headers whose position in the packet has to be found again.
    positions: Vec<Rc<HeaderStore>>,
    /// The block in which the entries at egress start.
    resume: Block,
    /// The block that branches to it, and where it goes otherwise.
    fork: (Block, Block),
}

/// An area of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    /// Headers, then metadata.
    All,
    /// Metadata that a clone of a packet at the end of ingress keeps.
    Clone,
    /// Metadata that a packet keeps that starts again.
    Again,
}

impl Lowering<'_> {
    /// Branches to the entries at egress.
    pub(super) fn open_division(&mut self, shared: &[Rc<Storage>]) -> Division {
        let (mut header_words, mut metadata, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (i, s) in shared.iter().enumerate() {
            words_of(s, if i == 0 { &mut header_words } else { &mut metadata });
            headers(s, &mut positions);
        }
        let p = &self.packet;
        header_words.extend([p.parsed, p.truncate_to, p.verdict].map(|slot| Word { slot, reset: 0 }));
        let (resume, start) = (self.b.new_block("resume"), self.b.new_block("start"));
        let which = self.entry();
        let fork = self.b.at;
        let first = self.b.bin(BinOp::Sub, which, Opnd::C(entry::UNICAST.into()), 32);
        let goes_on = self.b.cmp(Cc::Ule, first, Opnd::C((entry::CLONE_EGRESS - entry::UNICAST).into()), 32);
        self.b.branch(goes_on, resume, start);
        self.b.switch_to(start);
        Division { headers: header_words, metadata, positions, resume, fork: (fork, start) }
    }

    /// Gives a packet that starts again the metadata that it keeps.
    pub(super) fn start_again(&mut self, d: &Division) {
        if self.requests.resubmit.is_none() && self.requests.recirculate.is_none() {
            return;
        }
        let [again, arrival] = ["again", "arrival"].map(|label| self.b.new_block(label));
        let which = self.entry();
        let is_again = self.b.cmp(Cc::Uge, which, Opnd::C(entry::RESUBMIT.into()), 32);
        self.b.branch(is_again, again, arrival);
        self.b.switch_to(again);
        self.load_words(d, Area::Again);
        let resubmitted = self.b.cmp(Cc::Eq, which, Opnd::C(entry::RESUBMIT.into()), 32);
        let kinds = [instance::RESUBMITTED, instance::RECIRCULATED].map(Opnd::C);
        let kind = self.select(resubmitted, kinds[0], kinds[1], 32);
        self.set_standard("instance_type", kind);
        self.fill_standard_metadata();
        self.b.jump(arrival);
        self.b.switch_to(arrival);
    }

    /// Starts to record where the program chooses a group.
    pub(super) fn watch_group(&mut self) {
        if let Some((slot, _)) = self.standard_field("mcast_grp") {
            self.b.watch(slot);
        }
    }

    /// Branches off clones, which were parsed again; returns where they continue.
    pub(super) fn branch_off_clones(&mut self) -> Option<Block> {
        self.requests.clone[0]?;
        let [cloned, arrived] = ["cloned", "arrived"].map(|label| self.b.new_block(label));
        let which = self.entry();
        let is_clone = self.b.cmp(Cc::Eq, which, Opnd::C(entry::CLONE.into()), 32);
        self.b.branch(is_clone, cloned, arrived);
        self.b.switch_to(arrived);
        Some(cloned)
    }

    /// Ends the run of a packet for which ingress asked for more than a port.
    pub(super) fn divide(&mut self, d: &Division) {
        let group = self.get_standard("mcast_grp");
        let [clone, resubmit] = [self.requests.clone[0], self.requests.resubmit];
        let [cloned, again] = [clone, resubmit].map(|r| r.map_or(Opnd::C(0), |r| self.b.read(r.wanted)));
        let grouped = self.b.cmp(Cc::Ne, group, Opnd::C(0), 16);
        // One that the program never sets is 0, also where it seems to come from an earlier run.
        let chosen = self.b.watched().filter(|_| group != Opnd::C(0));
        self.needs.extend(chosen.map(|at| (need::GROUP, at)));
        let queued = self.is_queued();
        let any = [cloned, again, queued].into_iter().fold(grouped, |a, b| self.b.bin(BinOp::Or, a, b, 1));
        let [apart, alone] = ["apart", "alone"].map(|label| self.b.new_block(label));
        self.b.branch(any, apart, alone);
        self.b.switch_to(apart);
        if !self.b.is_dead() {
            let port = self.get_standard("egress_spec");
            let goes = self.b.cmp(Cc::Ne, port, Opnd::C(DROP_PORT), 32);
            let bit = |request: u32| Opnd::C(request.into());
            let alone = self.select(goes, bit(request::PORT), Opnd::C(0), 32);
            let onward = self.select(grouped, bit(request::GROUP), alone, 32);
            let onward = self.select(again, bit(request::RESUBMIT), onward, 32);
            let with = self.select(cloned, bit(request::CLONE), Opnd::C(0), 32);
            let asked = self.b.bin(BinOp::Or, onward, with, 32);
            let mut values = self.words(d, Area::All, None);
            for (area, request) in [(Area::Clone, clone), (Area::Again, resubmit)] {
                values.extend(request.into_iter().flat_map(|r| self.words(d, area, Some(r))));
            }
            let session = clone.map_or(Opnd::C(0), |r| self.b.read(r.session));
            let arguments =
                [(argument::CLONE_SESSION, session), (argument::GROUP, group), (argument::PORT, port)];
            self.store_block(&arguments, &values);
            self.b.emit(Op::SetContext(offset::OUTPUT_ACTION, 4, asked), Ty::None);
            if self.requests.has_priorities {
                self.report_destination(Opnd::C(0));
            }
            self.b.ret(Opnd::C(0));
        }
        self.b.switch_to(alone);
        // Egress does not learn that a packet was resubmitted or recirculated.
        self.set_standard("instance_type", Opnd::C(instance::NORMAL));
    }

    /// Asks for a clone of the packet at the end of egress. Returns the requests so far.
    pub(super) fn clone_at_end(&mut self, d: &Division) -> Opnd {
        let Some(request) = self.requests.clone[1] else { return Opnd::C(0) };
        let [clone, cloned] = ["clone", "egress ends"].map(|label| self.b.new_block(label));
        let asked = self.b.slot(Ty::Int(32));
        self.b.write(asked, Opnd::C(0));
        let wanted = self.b.read(request.wanted);
        self.b.branch(wanted, clone, cloned);
        self.b.switch_to(clone);
        let values = self.words(d, Area::All, Some(request));
        let session = self.b.read(request.session);
        self.store_block(&[(argument::CLONE_EGRESS_SESSION, session)], &values);
        let bit = Opnd::C(request::CLONE_EGRESS.into());
        self.b.emit(Op::SetContext(offset::OUTPUT_ACTION, 4, bit), Ty::None);
        self.b.write(asked, bit);
        self.b.jump(cloned);
        self.b.switch_to(cloned);
        self.b.read(asked)
    }

    /// Asks for the recirculation of the packet that is about to leave. `asked` are the requests so far.
    pub(super) fn recirculate_at_end(&mut self, d: &Division, asked: Opnd) {
        let Some(request) = self.requests.recirculate else { return };
        let [again, leaves] = ["recirculate", "leaves"].map(|label| self.b.new_block(label));
        let wanted = self.b.read(request.wanted);
        self.b.branch(wanted, again, leaves);
        self.b.switch_to(again);
        let values = self.words(d, Area::Again, Some(request));
        self.store_block(&[], &values);
        let asked = self.b.bin(BinOp::Or, asked, Opnd::C(request::RECIRCULATE.into()), 32);
        self.b.emit(Op::SetContext(offset::OUTPUT_ACTION, 4, asked), Ty::None);
        self.b.jump(leaves);
        self.b.switch_to(leaves);
    }

    /// Returns true if any packet starts at egress.
    pub(super) fn is_divided(&self) -> bool {
        self.requests.clone[0].is_some()
            || self.requests.queues.is_some()
            || self.needs.iter().any(|(need, _)| *need == need::GROUP)
    }

    /// Removes the branch to the entries at egress, of which the program has none.
    pub(super) fn close_division(&mut self, d: &Division) {
        let (fork, start) = d.fork;
        self.b.only_jump(fork, start);
    }

    /// Continues at egress, from each of its entries. Returns the port to which the packet goes.
    pub(super) fn resume(&mut self, d: &Division, cloned: Option<Block>) -> Opnd {
        let egress = self.b.new_block("egress of copies");
        self.b.switch_to(d.resume);
        self.load_words(d, Area::All);
        let which = self.entry();
        let kinds = [(entry::CLONE_EGRESS, instance::CLONE_EGRESS), (entry::REPLICA, instance::REPLICA)];
        let kind = kinds.into_iter().fold(Opnd::C(instance::NORMAL), |otherwise, (entry, kind)| {
            let is = self.b.cmp(Cc::Eq, which, Opnd::C(entry.into()), 32);
            self.select(is, Opnd::C(kind), otherwise, 32)
        });
        self.set_standard("instance_type", kind);
        // A clone at the end of egress has no metadata but what it keeps.
        let [kept, arrived] = [self.get_standard("ingress_port"), self.context(offset::INPUT_PORT, 4)];
        let is_clone = self.b.cmp(Cc::Eq, which, Opnd::C(entry::CLONE_EGRESS.into()), 32);
        let port = self.select(is_clone, arrived, kept, 32);
        self.set_standard("ingress_port", port);
        let [kept, replica] = [self.get_standard("egress_rid"), self.replica()];
        let is_unicast = self.b.cmp(Cc::Eq, which, Opnd::C(entry::UNICAST.into()), 32);
        let replica = self.select(is_unicast, kept, replica, 16);
        self.set_standard("egress_rid", replica);
        self.b.jump(egress);
        if let Some(cloned) = cloned {
            self.b.switch_to(cloned);
            let error = self.get_standard("parser_error");
            self.load_words(d, Area::Clone);
            self.set_standard("instance_type", Opnd::C(instance::CLONE));
            self.set_standard("parser_error", error);
            self.fill_standard_metadata();
            let replica = self.replica();
            self.set_standard("egress_rid", replica);
            self.b.jump(egress);
        }
        self.b.switch_to(egress);
        if self.requests.queues.is_some() {
            let base = self.block_address();
            for (field, at) in QUEUE_FIELDS {
                let v = self.b.emit(Op::LoadMap { base, offset: at as i32, bytes: 4 }, Ty::Int(32));
                self.set_standard(field, v);
            }
        }
        let to = self.context(offset::OUTPUT_PORT, 4);
        self.b.truncate(to, 16)
    }

    /// Returns where the run starts.
    fn entry(&mut self) -> Opnd {
        let which = self.context(offset::OUTPUT_ACTION, 4);
        let is_plain = self.requests.queues.is_none();
        if is_plain { which } else { self.b.bin(BinOp::And, which, Opnd::C(u64::from(!entry::QUEUED)), 32) }
    }

    /// Returns 1 if every packet waits between the parts.
    fn is_queued(&mut self) -> Opnd {
        if self.requests.queues.is_none() {
            return Opnd::C(0);
        }
        let which = self.context(offset::OUTPUT_ACTION, 4);
        let flag = self.b.bin(BinOp::And, which, Opnd::C(entry::QUEUED.into()), 32);
        self.b.cmp(Cc::Ne, flag, Opnd::C(0), 32)
    }

    fn replica(&mut self) -> Opnd {
        let to = self.context(offset::OUTPUT_PORT, 4);
        let replica = self.b.bin(BinOp::Shr, to, Opnd::C(16), 32);
        self.b.truncate(replica, 16)
    }

    /// Warns where the program asks for what a P4 VM does not do, and records it for the object.
    pub(super) fn record_needs(&mut self) {
        let named =
            [("clone", need::CLONE), ("resubmit", need::RESUBMIT), ("recirculate", need::RECIRCULATE)];
        for (name, need) in named {
            let call = self.request_spans.iter().find(|(n, _)| kind_of(n) == Some(name));
            self.needs.extend(call.map(|(_, at)| (need, *at)));
        }
        self.needs.extend(self.requests.queues.map(|at| (need::QUEUES, at)));
        let silent = [need::QUEUES, need::CALLS];
        for (need, at) in self.needs.clone().into_iter().filter(|(need, _)| !silent.contains(need)) {
            let does = match need {
                need::GROUP => "sends packets to a multicast group",
                need::CLONE => "clones packets",
                need::RESUBMIT => "resubmits packets",
                _ => "recirculates packets",
            };
            let what = format!("this program {does}: no P4 VM will load it");
            let hint = "`p4shield switch run` and `p4shield test` run it; in front of a switch, leave \
                that to the switch";
            self.sink.report(Code::Unused, at, what, hint);
        }
    }

    fn area(d: &Division, area: Area) -> (usize, impl Iterator<Item = &Word>) {
        let (all, kept) = (d.headers.len() + d.metadata.len(), d.metadata.len());
        let (first, own) = match area {
            Area::All => (0, d.headers.as_slice()),
            Area::Clone => (all, [].as_slice()),
            Area::Again => (all + kept, [].as_slice()),
        };
        (first, own.iter().chain(&d.metadata))
    }

    /// Returns the present values of an area, each with its number in the block. With a request, metadata
    /// has its values only where the request's list contains it.
    fn words(&mut self, d: &Division, area: Area, request: Option<Request>) -> Vec<(usize, Opnd)> {
        let (first, words) = Self::area(d, area);
        let words: Vec<Word> = words.copied().collect();
        let metadata = words.len() - d.metadata.len();
        let mut values = Vec::new();
        for (i, word) in words.into_iter().enumerate() {
            let value = match request.filter(|_| i >= metadata) {
                None => self.b.read(word.slot),
                Some(request) => self.kept(word, request),
            };
            values.push((first + i, value));
        }
        values
    }

    /// Returns the value of a metadata field if the list of the request contains it, else its first value.
    fn kept(&mut self, word: Word, request: Request) -> Opnd {
        let lists = self.requests.lists.iter().filter(|(_, slots)| slots.contains(&word.slot));
        let lists: Vec<u32> = lists.map(|(number, _)| *number).collect();
        let ty = self.b.type_of(word.slot);
        let Ty::Int(width) = ty else { return Opnd::C(word.reset) };
        let mut value = Opnd::C(word.reset);
        for number in lists {
            let list = self.b.read(request.list);
            let is = self.b.cmp(Cc::Eq, list, Opnd::C(number.into()), 16);
            let now = self.b.read(word.slot);
            value = self.select(is, now, value, width);
        }
        value
    }

    /// Stores arguments and values in the block.
    fn store_block(&mut self, arguments: &[(usize, Opnd)], values: &[(usize, Opnd)]) {
        let base = self.block_address();
        for (at, value) in arguments {
            self.b.emit(Op::StoreMap { base, offset: *at as i32, bytes: 4, value: *value }, Ty::None);
        }
        for (number, value) in values {
            let offset = (BLOCK_HEADER_SIZE + 8 * number) as i32;
            self.b.emit(Op::StoreMap { base, offset, bytes: 8, value: *value }, Ty::None);
        }
    }

    fn block_address(&mut self) -> Opnd {
        let map = self.b.value_of(&mut self.block, BLOCK_MAP, BLOCK_HEADER_SIZE as u32);
        self.b.only_value(map, "block", self.refuse)
    }

    /// Loads an area of the block.
    fn load_words(&mut self, d: &Division, area: Area) {
        let base = self.block_address();
        let (first, words) = Self::area(d, area);
        for (i, word) in words.enumerate() {
            let offset = (BLOCK_HEADER_SIZE + 8 * (first + i)) as i32;
            let ty = self.b.type_of(word.slot);
            let value = match area == Area::All || self.requests.keeps(word.slot) {
                true => self.b.emit(Op::LoadMap { base, offset, bytes: 8 }, ty),
                false => Opnd::C(word.reset),
            };
            self.b.write(word.slot, value);
        }
        let data = self.b.read(self.packet.data);
        for h in &d.positions {
            // The code that writes a header checks its position; one that was not extracted has none.
            let at = self.b.read(h.at);
            let within = self.b.cmp(Cc::Ule, at, Opnd::C(MAX_HEADER_BYTES.into()), 32);
            let at = self.select(within, at, Opnd::C(0), 32);
            let position = self.b.emit(Op::Offset(data, at), Ty::Packet);
            self.b.write(h.base, position);
        }
    }
}
