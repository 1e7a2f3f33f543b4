//! Command files of the reference switch's command line. A line has one command; `#` and `//` begin a
//! comment.

use crate::multicast::{MulticastError, MulticastGroups};
use crate::profiles::Profiles;
use crate::{FileError, Located, Problem, elements, mirroring, queues};
use p4shield_tables::Control;
use p4shield_tables::direct::Cells;
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::model::TableFacts;
use p4shield_tables::write::{Entry, Group, Write};
use std::collections::BTreeMap;

/// The last of the reference switch's priorities: there the smallest number comes first, here the greatest,
/// as in P4Runtime. Its own P4Runtime server converts with the same number.
pub(crate) const LAST_PRIORITY: u32 = (1 << 24) - 1;

const ADD: &str = "table_add TABLE ACTION KEY ... => PARAMETER ... [PRIORITY]";
const SET_DEFAULT: &str = "table_set_default TABLE ACTION PARAMETER ...";
const ADD_INDIRECT: &str = "table_indirect_add[_with_group] TABLE KEY ... => HANDLE [PRIORITY]";
const DEFAULT_INDIRECT: &str = "table_indirect_set_default TABLE MEMBER";
const VALUE: &str = "pvs_add SET VALUE ... or pvs_remove SET VALUE ...";
const MODIFY: &str = "table_modify TABLE ACTION HANDLE PARAMETER ...";
const DELETE: &str = "table_delete TABLE HANDLE";
const KNOWN: &str = "table_add, table_set_default, table_modify, table_delete, mc_mgrp_create, \
                     mc_mgrp_destroy, mc_node_create, mc_node_update, mc_node_associate, \
                     mc_node_dissociate, mc_node_destroy, mirroring_add, mirroring_add_mc, \
                     mirroring_delete, register_write, register_reset, counter_write, \
                     counter_reset, meter_set_rates, meter_array_set_rates, set_queue_rate, \
                     set_queue_depth, act_prof_create_member, act_prof_create_group, \
                     act_prof_add_member_to_group, act_prof_remove_member_from_group, \
                     table_indirect_add, table_indirect_add_with_group, table_indirect_set_default, \
                     pvs_add, pvs_remove";

pub(crate) fn read(control: &Control, text: &str) -> Result<Vec<Located>, FileError> {
    let mut reader = Reader {
        control,
        entries: BTreeMap::new(),
        multicast: MulticastGroups::default(),
        profiles: Profiles::default(),
    };
    let mut all = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let line = at + 1;
        let words: Vec<_> = text.split_whitespace().take_while(|w| !is_comment(w)).collect();
        let Some((command, arguments)) = words.split_first() else { continue };
        let writes = reader.command(command, arguments).map_err(|problem| problem.at(line))?;
        all.extend(writes.into_iter().map(|write| Located { line, write }));
    }
    Ok(all)
}

fn is_comment(word: &str) -> bool {
    word.starts_with('#') || word.starts_with("//")
}

struct Reader<'c> {
    control: &'c Control,
    /// The entries that the file has added, by table; the index is the reference switch's handle.
    entries: BTreeMap<String, Vec<Option<Entry>>>,
    multicast: MulticastGroups,
    profiles: Profiles,
}

impl Reader<'_> {
    fn command(&mut self, command: &str, arguments: &[&str]) -> Result<Vec<Write>, Problem> {
        let write = elements::write(command, arguments).or_else(|| queues::write(command, arguments));
        if let Some(write) = write {
            return write.and_then(|w| self.of_entry(w)).map(|w| vec![w]);
        }
        if let Some(writes) = self.profiles.command(command, arguments) {
            return writes;
        }
        match command {
            "table_add" => self.add(arguments).map(|w| vec![w]),
            "table_indirect_add" | "table_indirect_add_with_group" => self.add_indirect(command, arguments),
            "table_indirect_set_default" => self.set_default_indirect(arguments).map(|w| vec![w]),
            "pvs_add" | "pvs_remove" => value(command, arguments).map(|w| vec![w]),
            "table_set_default" => self.set_default(arguments).map(|w| vec![w]),
            "table_modify" => self.modify(arguments).map(|w| vec![w]),
            "table_delete" => self.delete(arguments).map(|w| vec![w]),
            _ if command.starts_with("mc_mgrp_") || command.starts_with("mc_node_") => {
                self.multicast(command, arguments)
            }
            _ => match mirroring::write(command, &numbers(command, arguments).unwrap_or_default()) {
                Some(write) => Ok(vec![write?]),
                None => Err(unsupported(command)),
            },
        }
    }

    /// Returns a write of a counter or meter. In the entries of a table, its index is an entry's handle.
    fn of_entry(&mut self, write: Write) -> Result<Write, Problem> {
        let (index, cells) = match &write {
            Write::Counter { counter, index, .. } => (*index, self.control.counter(counter)),
            Write::Meter { meter, index, .. } => (*index, self.control.meter(meter)),
            _ => return Ok(write),
        };
        // A name without an object is refused with the same words where the write is encoded.
        let (Some(handle), Ok(Cells::Direct(direct))) = (index, cells) else { return Ok(write) };
        let (table, handle) = (direct.table.name.clone(), handle.to_string());
        let matches = self.added(&table, &handle)?.as_ref().map(|e| e.matches.clone()).unwrap_or_default();
        Ok(match write {
            Write::Counter { counter, packets, bytes, .. } => {
                Write::EntryCounter { counter, matches, packets, bytes }
            }
            Write::Meter { meter, rates, .. } => Write::EntryMeter { meter, matches, rates },
            other => other,
        })
    }

    fn table(&self, name: &str) -> Result<&TableFacts, Problem> {
        Ok(self.control.table(name)?)
    }

    fn add(&mut self, arguments: &[&str]) -> Result<Write, Problem> {
        let [name, action, rest @ ..] = arguments else { return Err(Problem::Usage(ADD)) };
        let table = self.table(name)?;
        let arrow = rest.iter().position(|w| *w == "=>").ok_or(Problem::Usage(ADD))?;
        let (keys, mut params) = (&rest[..arrow], &rest[arrow + 1..]);
        let mut priority = None;
        // The reference switch's command line takes it for the same tables.
        if table.keys.iter().any(|k| matches!(k.kind, "ternary" | "range" | "optional")) {
            let (last, others) = params.split_last().unwrap_or((&"=>", &[]));
            priority = Some(self::priority(table, last)?);
            params = others;
        }
        let keys = keys.iter().map(|key| unnamed(key.replacen("->", "..", 1))).collect();
        let entry = Entry {
            table: table.name.clone(),
            matches: MatchText { keys, priority },
            action: action_text(action, params),
        };
        self.entries.entry(entry.table.clone()).or_default().push(Some(entry.clone()));
        Ok(Write::Add(entry))
    }

    /// An entry that refers to a member or a group of an action profile.
    fn add_indirect(&mut self, command: &str, arguments: &[&str]) -> Result<Vec<Write>, Problem> {
        let usage = Problem::Usage(ADD_INDIRECT);
        let [name, rest @ ..] = arguments else { return Err(usage) };
        let Some(handle) = rest.iter().position(|w| *w == "=>").and_then(|arrow| rest.get(arrow + 1)) else {
            return Err(usage);
        };
        let table = self.table(name)?.name.clone();
        let (action, before) = match command {
            "table_indirect_add" => (self.profiles.action(handle)?, None),
            _ => self.profiles.refer(&table, handle)?,
        };
        // Read as any other entry, with the action in place of the handle.
        let words: Vec<&str> = rest.iter().copied().filter(|w| !std::ptr::eq(*w, *handle)).collect();
        let entry = self.add(&[&[*name, "-"], words.as_slice()].concat())?;
        let Write::Add(mut entry) = entry else { return Ok(Vec::new()) };
        entry.action = action;
        if let Some(last) = self.entries.get_mut(&table).and_then(|all| all.last_mut()) {
            *last = Some(entry.clone());
        }
        Ok(before.into_iter().chain([Write::Add(entry)]).collect())
    }

    fn set_default_indirect(&self, arguments: &[&str]) -> Result<Write, Problem> {
        let [table, rest @ ..] = arguments else { return Err(Problem::Usage(DEFAULT_INDIRECT)) };
        let [member] = after_arrow(rest) else { return Err(Problem::Usage(DEFAULT_INDIRECT)) };
        Ok(Write::Default { table: self.table(table)?.name.clone(), action: self.profiles.action(member)? })
    }

    fn set_default(&self, arguments: &[&str]) -> Result<Write, Problem> {
        let [table, action, params @ ..] = arguments else { return Err(Problem::Usage(SET_DEFAULT)) };
        let table = self.table(table)?.name.clone();
        Ok(Write::Default { table, action: action_text(action, after_arrow(params)) })
    }

    fn modify(&mut self, arguments: &[&str]) -> Result<Write, Problem> {
        let [table, action, handle, params @ ..] = arguments else { return Err(Problem::Usage(MODIFY)) };
        let entry = self.added(table, handle)?.as_mut().ok_or(Problem::Usage(MODIFY))?;
        entry.action = action_text(action, after_arrow(params));
        Ok(Write::Set(entry.clone()))
    }

    fn delete(&mut self, arguments: &[&str]) -> Result<Write, Problem> {
        let [table, handle] = arguments else { return Err(Problem::Usage(DELETE)) };
        let Entry { table, matches, .. } = self.added(table, handle)?.take().ok_or(Problem::Usage(DELETE))?;
        Ok(Write::Delete { table, matches })
    }

    /// Returns the entry with this handle, which exists.
    fn added(&mut self, table: &str, handle: &str) -> Result<&mut Option<Entry>, Problem> {
        let table = self.table(table)?.name.clone();
        let entries = self.entries.get_mut(&table).map_or(&mut [][..], Vec::as_mut_slice);
        let entry = handle.parse().ok().and_then(|at: usize| entries.get_mut(at)).filter(|e| e.is_some());
        entry.ok_or_else(|| Problem::Handle { table, handle: handle.to_owned() })
    }

    fn multicast(&mut self, command: &str, arguments: &[&str]) -> Result<Vec<Write>, Problem> {
        let numbers = numbers(command, arguments)?;
        let changed = self.multicast.command(command, &numbers).map_err(|error| match error {
            // The command is a multicast command by its name, but none of those that exist.
            MulticastError::Command(_) => unknown(command),
            error => error.into(),
        })?;
        let write = |group: u16| match self.multicast.has(group) {
            true => Write::SetGroup(Group { group, copies: self.multicast.copies(group.into()) }),
            false => Write::DeleteGroup { group },
        };
        Ok(changed.into_iter().map(write).collect())
    }
}

/// A member of a parser value set.
fn value(command: &str, arguments: &[&str]) -> Result<Write, Problem> {
    let [set, values @ ..] = arguments else { return Err(Problem::Usage(VALUE)) };
    let (set, values) = ((*set).to_owned(), values.iter().map(|v| unnamed((*v).to_owned())).collect());
    Ok(if command == "pvs_add" {
        Write::AddValue { set, values }
    } else {
        Write::DeleteValue { set, values }
    })
}

/// Reads arguments that are numbers.
fn numbers(command: &str, arguments: &[&str]) -> Result<Vec<u64>, Problem> {
    let numbers = arguments.iter().map(|w| w.parse().ok()).collect::<Option<Vec<u64>>>();
    numbers.ok_or(Problem::Unsupported {
        command: command.to_owned(),
        why: "its arguments have to be numbers; lists of aggregated links are not supported",
    })
}

/// The reason why no write comes from a command.
fn unsupported(command: &str) -> Problem {
    let why = match command {
        _ if command.starts_with("mirroring_") => "it does not write anything; remove the line",
        _ if command.starts_with("mc_") => "the switch has no aggregated links",
        _ if ["register_", "counter_", "meter_"].iter().any(|p| command.starts_with(p)) => {
            "it does not write anything; remove the line"
        }
        _ if command.starts_with("pvs_") => "write pvs_add and pvs_remove with the members",
        _ if command.starts_with("table_indirect_") => {
            "write table_indirect_add, table_indirect_add_with_group or table_indirect_set_default"
        }
        _ if command.starts_with("table_") => "it does not write an entry; remove the line",
        _ if command.starts_with("set_crc") => "a program declares its checksums and hashes",
        _ => return unknown(command),
    };
    Problem::Unsupported { command: command.to_owned(), why }
}

fn unknown(command: &str) -> Problem {
    Problem::UnknownCommand { command: command.to_owned(), known: KNOWN.to_owned() }
}

fn priority(table: &TableFacts, word: &str) -> Result<u32, Problem> {
    let priority = word.parse::<u32>().ok().filter(|p| *p <= LAST_PRIORITY);
    let wrong = || Problem::Priority { table: table.name.clone(), word: word.to_owned() };
    Ok(LAST_PRIORITY - priority.ok_or_else(wrong)?)
}

/// `=>` may stand before the parameters also where no keys come before it.
fn after_arrow<'p, 'w>(params: &'p [&'w str]) -> &'p [&'w str] {
    params.strip_prefix(&["=>"]).unwrap_or(params)
}

fn action_text(name: &str, params: &[&str]) -> ActionText {
    ActionText { name: name.to_owned(), params: params.iter().map(|p| unnamed((*p).to_owned())).collect() }
}

fn unnamed(value: String) -> Named {
    Named { name: None, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::program;
    use p4shield_tables::model::{DirectFacts, Unit};
    use p4shield_tables::write::GroupCopy;

    fn writes(text: &str) -> Vec<Located> {
        read(&program(), text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn commands_add_entries_and_set_defaults() {
        let text = "# routes\n\ntable_set_default routes drop\ntable_add routes forward 10.0.1.0/24 => \
                    00:00:0a:00:00:01 1 // left\n";
        let written = writes(text);
        assert_eq!(written.iter().map(|w| w.line).collect::<Vec<_>>(), [3, 4]);
        let Write::Default { table, action } = &written[0].write else { panic!("{written:?}") };
        assert_eq!((table.as_str(), action.name.as_str()), ("ingress.routes", "drop"));
        let Write::Add(entry) = &written[1].write else { panic!("{written:?}") };
        let values = |named: &[Named]| named.iter().map(|n| n.value.clone()).collect::<Vec<_>>();
        assert_eq!(values(&entry.matches.keys), ["10.0.1.0/24"]);
        assert_eq!(values(&entry.action.params), ["00:00:0a:00:00:01", "1"]);
        assert_eq!(entry.matches.priority, None);
    }

    #[test]
    fn the_smallest_priority_of_a_file_comes_first() {
        let written =
            writes("table_add acl drop 0x1&&&0xf 80->443 => 0\ntable_add acl drop 1&&&1 1->2 => 10\n");
        let priorities: Vec<_> = written
            .iter()
            .map(|w| if let Write::Add(e) = &w.write { e.matches.priority } else { None })
            .collect();
        assert_eq!(priorities, [Some(LAST_PRIORITY), Some(LAST_PRIORITY - 10)]);
        let Write::Add(entry) = &written[0].write else { panic!("{written:?}") };
        assert_eq!(entry.matches.keys[1].value, "80..443");
    }

    #[test]
    fn handles_name_entries_of_the_same_file() {
        let text = "table_add routes drop 10.0.0.0/8 =>\ntable_add routes drop 10.0.1.0/24 =>\n\
                    table_modify routes forward 1 => 02:00:00:00:00:01 3\ntable_delete routes 0\n";
        let written = writes(text);
        let Write::Set(entry) = &written[2].write else { panic!("{written:?}") };
        assert_eq!(
            (entry.matches.keys[0].value.as_str(), entry.action.name.as_str()),
            ("10.0.1.0/24", "forward")
        );
        let Write::Delete { matches, .. } = &written[3].write else { panic!("{written:?}") };
        assert_eq!(matches.keys[0].value, "10.0.0.0/8");
    }

    #[test]
    fn handles_name_counters_and_meters_of_entries() {
        let mut program = program();
        let cell = |name: &str| Some(DirectFacts { name: name.into(), unit: Unit::Packets, metric: None });
        let routes = &mut program.tables[0];
        (routes.counter, routes.counter_offset) = (cell("ingress.hits"), Some(16));
        (routes.meter, routes.meter_offset, routes.value_size) = (cell("ingress.limit"), Some(32), 32 + 64);
        let text = "table_add routes drop 10.0.0.0/8 =>\ntable_add routes drop 10.0.1.0/24 =>\n\
                    counter_write hits 1 5 600\nmeter_set_rates limit 0 1:1 2:2\ncounter_reset hits\n";
        let written = read(&program, text).unwrap_or_else(|e| panic!("{e}"));
        let Write::EntryCounter { counter, matches, packets: 5, bytes: 600 } = &written[2].write else {
            panic!("{written:?}")
        };
        assert_eq!((counter.as_str(), matches.keys[0].value.as_str()), ("hits", "10.0.1.0/24"));
        let Write::EntryMeter { matches, rates, .. } = &written[3].write else { panic!("{written:?}") };
        assert_eq!((matches.keys[0].value.as_str(), rates.len()), ("10.0.0.0/8", 2));
        assert!(matches!(&written[4].write, Write::Counter { index: None, .. }), "{written:?}");
        let error = read(&program, "counter_write hits 0 1 1\n").unwrap_err();
        assert!(error.line == 1 && error.to_string().contains("has no entry 0 of this file"), "{error}");
    }

    #[test]
    fn multicast_commands_set_groups() {
        let text = "mc_mgrp_create 1\nmc_node_create 5 2 3\nmc_node_associate 1 0\nmc_mgrp_destroy 1\n";
        let copy = |port| GroupCopy { port, replica: 5 };
        let expected = [
            (1, Write::SetGroup(Group { group: 1, copies: vec![] })),
            (3, Write::SetGroup(Group { group: 1, copies: vec![copy(2), copy(3)] })),
            (4, Write::DeleteGroup { group: 1 }),
        ];
        assert_eq!(writes(text), expected.map(|(line, write)| Located { line, write }));
    }

    #[test]
    fn the_first_wrong_line_of_commands_is_named() {
        for (text, line, part) in [
            ("table_add\n", 1, "write it as: table_add TABLE"),
            ("\ntable_add routes drop 10.0.0.0/8\n", 2, "write it as: table_add TABLE"),
            ("table_add nowhere drop 1 =>\n", 1, "unknown table `nowhere`; known: "),
            ("table_add acl drop 1&&&1 1->2 => high\n", 1, "the last word is `high`"),
            ("table_add acl drop 1&&&1 1->2 =>\n", 1, "ends with a priority"),
            ("table_add acl drop 1&&&1 1->2 => 16777216\n", 1, "the last word is `16777216`"),
            ("table_delete routes 0\n", 1, "has no entry 0 of this file"),
            ("table_add routes drop 1 =>\ntable_delete routes 0\ntable_delete routes 0\n", 3, "no entry 0"),
            ("mirroring_get 1\n", 1, "mirroring_get is not supported: it does not write anything"),
            ("mirroring_add 1\n", 1, "write it as: mirroring_add SESSION PORT"),
            ("register_read r\n", 1, "does not write anything"),
            ("meter_array_set_rates m 1:1\n", 1, "write it as: meter_array_set_rates METER"),
            ("set_queue_rate 10 2 3\n", 1, "set_queue_rate is not supported: a port has one rate"),
            ("mc_node_create 1 2 | 3\n", 1, "aggregated links"),
            ("mc_node_associate 1 0\n", 1, "unknown group 1"),
            ("mc_mgrp_rename 1 2\n", 1, "unknown command `mc_mgrp_rename`"),
            ("hello\n", 1, "unknown command `hello`; known: table_add"),
        ] {
            let error = read(&program(), text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
