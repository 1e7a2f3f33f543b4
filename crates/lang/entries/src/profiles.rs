//! Action profiles and selectors as in the reference switch's command line: members are actions, groups have
//! members, and entries refer to either by the handles that the file's commands made.
//!
//! A switch of ours has no profiles: an entry with a member has its action, and each table has its own
//! groups. So a file that changes a group changes it in every table in which its entries refer to it.

use crate::Problem;
use p4shield_tables::entry::{ActionText, GROUP_ACTION, Named};
use p4shield_tables::write::Write;
use std::collections::BTreeSet;

const CREATE_MEMBER: &str = "act_prof_create_member PROFILE ACTION PARAMETER ...";
const CREATE_GROUP: &str = "act_prof_create_group PROFILE";
const ADD_TO_GROUP: &str = "act_prof_add_member_to_group PROFILE MEMBER GROUP";
const REMOVE_FROM_GROUP: &str = "act_prof_remove_member_from_group PROFILE MEMBER GROUP";

/// The members and groups that a file has made so far, by handle.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    /// The one profile of the file.
    name: Option<String>,
    members: Vec<ActionText>,
    groups: Vec<Group>,
}

#[derive(Debug, Default)]
struct Group {
    members: Vec<usize>,
    /// The tables whose entries refer to it.
    tables: BTreeSet<String>,
}

impl Profiles {
    /// Executes a command; `None` if it is another one.
    pub(crate) fn command(
        &mut self,
        command: &str,
        arguments: &[&str],
    ) -> Option<Result<Vec<Write>, Problem>> {
        let rest = command.strip_prefix("act_prof_")?;
        let result = match (rest, arguments) {
            ("create_member", [profile, action, params @ ..]) => self.of(profile).map(|this| {
                let params = params.iter().map(|p| Named { name: None, value: (*p).to_owned() }).collect();
                this.members.push(ActionText { name: (*action).to_owned(), params });
                Vec::new()
            }),
            ("create_group", [profile]) => self.of(profile).map(|this| {
                this.groups.push(Group::default());
                Vec::new()
            }),
            ("add_member_to_group" | "remove_member_from_group", [profile, member, group]) => {
                self.of(profile).and_then(|this| this.change_group(rest, member, group))
            }
            ("create_member", _) => Err(Problem::Usage(CREATE_MEMBER)),
            ("create_group", _) => Err(Problem::Usage(CREATE_GROUP)),
            ("add_member_to_group", _) => Err(Problem::Usage(ADD_TO_GROUP)),
            ("remove_member_from_group", _) => Err(Problem::Usage(REMOVE_FROM_GROUP)),
            _ => Err(Problem::Unsupported {
                command: command.to_owned(),
                why: "a file makes its members and groups as they shall be; change the line that makes them",
            }),
        };
        Some(result)
    }

    /// Takes the name of the file's profile.
    fn of(&mut self, profile: &str) -> Result<&mut Self, Problem> {
        let known = self.name.get_or_insert_with(|| profile.to_owned());
        if known != profile {
            return Err(Problem::Profiles { first: known.clone(), second: profile.to_owned() });
        }
        Ok(self)
    }

    fn change_group(&mut self, how: &str, member: &str, group: &str) -> Result<Vec<Write>, Problem> {
        let member = self.member(member)?;
        let number = self.group(group)?;
        let members = &mut self.groups[number].members;
        members.retain(|m| *m != member);
        if how.starts_with("add") {
            members.push(member);
        }
        let tables: Vec<String> = self.groups[number].tables.iter().cloned().collect();
        Ok(tables.into_iter().map(|table| self.write(number, table)).collect())
    }

    /// Returns the action of an entry that refers to a member.
    pub(crate) fn action(&self, member: &str) -> Result<ActionText, Problem> {
        Ok(self.members[self.member(member)?].clone())
    }

    /// Returns the action of an entry of a table that refers to a group, and the write before the table's
    /// first.
    pub(crate) fn refer(&mut self, table: &str, group: &str) -> Result<(ActionText, Option<Write>), Problem> {
        let number = self.group(group)?;
        let is_new = self.groups[number].tables.insert(table.to_owned());
        let params = vec![Named { name: None, value: number.to_string() }];
        let action = ActionText { name: GROUP_ACTION.to_owned(), params };
        Ok((action, is_new.then(|| self.write(number, table.to_owned()))))
    }

    fn write(&self, group: usize, table: String) -> Write {
        let members = self.groups[group].members.iter().map(|m| self.members[*m].clone()).collect();
        Write::SetMembers { table, group: group as u32, members }
    }

    fn member(&self, handle: &str) -> Result<usize, Problem> {
        known(handle, self.members.len(), "member")
    }

    fn group(&self, handle: &str) -> Result<usize, Problem> {
        known(handle, self.groups.len(), "group")
    }
}

fn known(handle: &str, count: usize, what: &'static str) -> Result<usize, Problem> {
    let at = handle.parse().ok().filter(|at| *at < count);
    at.ok_or_else(|| Problem::ProfileHandle { what, handle: handle.to_owned() })
}

#[cfg(test)]
mod tests {
    use crate::commands::read;
    use crate::fuzz::program;
    use p4shield_tables::entry::ActionText;
    use p4shield_tables::write::Write;

    const FILE: &str = "act_prof_create_member p forward 02:00:00:00:00:01 1\n\
                        act_prof_create_member p drop\nact_prof_create_group p\n\
                        act_prof_add_member_to_group p 0 0\n\
                        table_indirect_add_with_group routes 10.0.1.0/24 => 0\n\
                        act_prof_add_member_to_group p 1 0\n\
                        table_indirect_add routes 10.0.2.0/24 => 1\ntable_indirect_set_default routes 1\n";

    #[test]
    fn groups_are_written_where_entries_refer_to_them() {
        let written = read(&program(), FILE).unwrap_or_else(|e| panic!("{e}"));
        let names = |members: &[ActionText]| members.iter().map(|m| m.name.clone()).collect::<Vec<_>>();
        let shown = written.iter().map(|w| match &w.write {
            Write::SetMembers { table, group, members } => format!("{table} {group} {:?}", names(members)),
            Write::Add(e) => {
                format!("{} {} {}", e.matches.keys[0].value, e.action.name, e.action.params.len())
            }
            Write::Default { action, .. } => format!("default {}", action.name),
            other => format!("{other:?}"),
        });
        let shown: Vec<(usize, String)> = written.iter().map(|w| w.line).zip(shown).collect();
        let expected = [
            (5, "ingress.routes 0 [\"forward\"]"),
            (5, "10.0.1.0/24 $group 1"),
            (6, "ingress.routes 0 [\"forward\", \"drop\"]"),
            (7, "10.0.2.0/24 drop 0"),
            (8, "default drop"),
        ];
        assert_eq!(shown, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn wrong_handles_and_second_profiles_are_named() {
        for (text, line, why) in [
            (
                "act_prof_create_group p\nact_prof_add_member_to_group p 0 0\n",
                2,
                "no line before made member 0",
            ),
            ("table_indirect_add_with_group routes 10.0.0.0/8 => 0\n", 1, "no line before made group 0"),
            ("act_prof_create_group p\nact_prof_create_group q\n", 2, "two action profiles, p and q"),
            ("act_prof_create_group\n", 1, "write it as: act_prof_create_group PROFILE"),
            ("act_prof_delete_group p 0\n", 1, "makes its members and groups as they shall be"),
            ("table_indirect_add routes 10.0.0.0/8\n", 1, "write it as: table_indirect_add"),
        ] {
            let error = read(&program(), text).unwrap_err();
            assert!(error.line == line && error.to_string().contains(why), "{error}");
        }
    }
}
