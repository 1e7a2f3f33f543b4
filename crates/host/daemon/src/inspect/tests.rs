use super::*;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
use p4shield_abi::schema::{
    ActionSchema, ArraySchema, DirectSchema, Element, KeyKind, KeySchema, ParamSchema, Schema, TableSchema,
    Unit,
};
use p4shield_control::{Entries, MapDescription, MapPart, MapQuery, ProgramDescription, encode};
use p4shield_tables::view::{MatchView, Number, ObjectKind, What};
use p4shield_tables::{Extent, ReadMap, objects};

const SLOT: ProgramSlot = ProgramSlot::new(0, Direction::Ingress);

/// A program, as a P4 VM would show it.
#[derive(Clone, Default)]
struct Fake {
    schema: Schema,
    maps: Vec<(MapDescription, Entries)>,
}

impl Fake {
    fn map(&mut self, name: &str, (map_type, key_size, value_size): (u32, u32, u32), entries: Entries) {
        let definition = MapDefinition { map_type, key_size, value_size, max_entries: 1000, flags: 0 };
        self.maps.push((MapDescription::new(name, &definition), entries));
    }

    fn reply(&self, request: &Request) -> Result<Reply, String> {
        match request {
            Request::DescribeProgram { maps, schema, .. } => {
                let bytes = self.schema.encode();
                let described = self.maps.iter().map(|(m, _)| m.clone());
                // In small parts.
                Ok(Reply::Description(Box::new(ProgramDescription {
                    program: [7; 32],
                    map_count: self.maps.len() as u32,
                    maps: described.skip(*maps as usize).take(1).collect(),
                    schema_len: Some(bytes.len() as u32),
                    schema: bytes.into_iter().skip(*schema as usize).take(200).collect(),
                })))
            }
            Request::ReadMap(MapQuery { map, from, rows, .. }) => {
                let (description, entries) = &self.maps[*map as usize];
                let rows = *rows as usize;
                let size = description.definition().max_entries;
                // The first half of the slots has all entries.
                let first = *from < size / 2;
                let entries = if first { entries.as_slice() } else { &[] };
                let (sent, more) = entries.split_at(rows.min(entries.len()));
                let next = first.then_some(size / 2);
                Ok(Reply::MapPart(MapPart { entries: sent.to_vec(), more: more.len() as u32, next }))
            }
            other => panic!("{other:?}"),
        }
    }

    fn show(&self, what: What, name: Option<&str>) -> Result<DirectionView, String> {
        let name = name.map(ToOwned::to_owned);
        let inspection = Inspection { what, limit: Some(10), name, ..Inspection::default() };
        show(&mut |request| self.reply(&request), SLOT, &inspection)
    }
}

fn array(name: &str, element: Element, width: u32) -> ArraySchema {
    let map = name.replace('.', "_");
    ArraySchema { name: name.into(), map, element, unit: Unit::Both, width, metric: None }
}

fn key(name: &str, kind: KeyKind, width: u32, offset: u32) -> KeySchema {
    KeySchema { name: name.into(), kind, width, offset }
}

/// A table with actions `drop()` and `forward(port, mac)`.
fn table(name: &str, keys: Vec<KeySchema>, key_size: u32) -> TableSchema {
    let param = |name: &str, width, offset| ParamSchema { name: name.into(), width, offset };
    let forward = vec![param("port", 9, 4), param("mac", 48, 8)];
    TableSchema {
        name: name.into(),
        map: Some(name.replace('.', "_")),
        constant: false,
        default_map: None,
        groups: None,
        keys,
        key_size,
        actions: vec![
            ActionSchema { name: "pipe.drop".into(), params: Vec::new(), default_only: false },
            ActionSchema { name: "pipe.forward".into(), params: forward, default_only: false },
        ],
        counter: None,
        meter: None,
        default_action: Some(vec![0; 16]),
        entries: Vec::new(),
    }
}

const FORWARD: [u8; 16] = [1, 0, 0, 0, 0xff, 1, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0];

fn index(n: u32) -> Vec<u8> {
    n.to_ne_bytes().to_vec()
}

/// A program with an object of each kind.
fn sample() -> Fake {
    let mut fake = Fake::default();
    let two = |a: u64, b: u64| [a.to_le_bytes(), b.to_le_bytes()].concat();
    fake.schema.arrays = vec![
        array("pipe.seen", Element::Counter, 64),
        array("pipe.last", Element::SignedRegister, 12),
        array("pipe.wide", Element::Register, 100),
        array("pipe.rate", Element::Meter, 2),
    ];
    fake.map("pipe_seen", (TYPE_ARRAY, 4, 16), vec![(index(3), two(2, 120)), (index(9), two(1, 60))]);
    fake.map("pipe_last", (TYPE_ARRAY, 4, 2), vec![(index(0), vec![0xfe, 0x0f]), (index(1), vec![5, 0])]);
    fake.map("pipe_wide", (TYPE_ARRAY, 4, 16), vec![(index(0), two(0x1234, 0xf_0000_0001))]);
    fake.map("pipe_rate", (TYPE_ARRAY, 4, 56), vec![(index(0), vec![1; 56])]);
    let counter = DirectSchema { name: "pipe.hits".into(), unit: Unit::Packets, offset: 16, metric: None };
    let routes = table("pipe.routes", vec![key("hdr.ip.dst", KeyKind::Lpm, 20, 4)], 7);
    let acl_keys = vec![
        key("proto", KeyKind::Ternary, 8, 0),
        key("port", KeyKind::Range, 16, 1),
        key("flag", KeyKind::Optional, 1, 3),
    ];
    let exact = TableSchema {
        counter: Some(counter),
        ..table("pipe.exact", vec![key("k", KeyKind::Exact, 9, 0)], 2)
    };
    let code = TableSchema {
        map: None,
        entries: vec![(vec![9, 0, 0, 0, 0, 80, 0xff, 0xff], FORWARD.to_vec())],
        ..table("pipe.code", vec![key("port", KeyKind::Exact, 16, 0)], 2)
    };
    fake.schema.tables = vec![routes, table("pipe.acl", acl_keys, 4), exact, code];
    // 20 bits of a prefix begin with the first bit of their bytes.
    let prefix = [[12, 0, 0, 0].as_slice(), &[0xab, 0xc0, 0]].concat();
    fake.map("pipe_routes", (TYPE_LPM_TRIE, 7, 16), vec![(prefix, FORWARD.to_vec())]);
    let rule = vec![5, 0, 0, 0, 0x10, 0, 22, 0, 0xf0, 0, 80, 0];
    fake.map("pipe_acl", (TYPE_CLASSIFIER, 4, 16), vec![(rule, vec![0; 16])]);
    let counted = [FORWARD.as_slice(), &two(7, 420)].concat();
    fake.map("pipe_exact", (TYPE_HASH, 2, 32), vec![(vec![1, 0x23], counted)]);
    fake.map("c_flows", (TYPE_HASH, 2, 3), vec![(vec![1, 2], vec![3, 4, 5])]);
    fake.map("c_scratch", (TYPE_ARRAY, 4, 3), Vec::new());
    fake
}

#[test]
fn counters_and_registers_are_shown_as_the_program_declares() {
    let shown = sample().show(What::Counters, None).unwrap();
    let [seen, hits] = shown.objects.as_slice() else { panic!("{shown:?}") };
    assert_eq!((seen.name.as_str(), seen.kind, seen.size), ("pipe.seen", ObjectKind::Counter, 1000));
    let counts: Vec<_> = seen.rows.iter().map(|r| (r.index, r.packets, r.bytes)).collect();
    assert_eq!(counts, [(Some(3), Some(2), Some(120)), (Some(9), Some(1), Some(60))]);
    assert_eq!((hits.name.as_str(), hits.kind), ("pipe.hits", ObjectKind::DirectCounter));
    let row = &hits.rows[0];
    assert_eq!((row.packets, row.bytes), (Some(7), None));
    assert_eq!(row.keys, [MatchView::Exact("0x123".into())]);

    let shown = sample().show(What::Registers, None).unwrap();
    let names: Vec<_> = shown.objects.iter().map(|o| (o.name.as_str(), o.width)).collect();
    let widths = [Some(12), Some(100), None, None];
    assert_eq!(
        names,
        ["pipe.last", "pipe.wide", "pipe.rate", "c_scratch"].into_iter().zip(widths).collect::<Vec<_>>()
    );
    let values = |o: usize| shown.objects[o].rows.iter().filter_map(|r| r.value.clone()).collect::<Vec<_>>();
    assert_eq!(values(0), [Number::Negative(-2), Number::Unsigned(5)]);
    assert_eq!(values(1), [Number::Wide("0xf000000010000000000001234".into())]);
    assert_eq!(shown.objects[2].rows[0].meter.as_ref().unwrap().peak_burst, 0x0101_0101_0101_0101);
    assert_eq!(shown.notes, ["maps of C code are shown raw"]);
}

#[test]
fn tables_are_shown_with_their_keys_actions_and_defaults() {
    let shown = sample().show(What::Tables, None).unwrap();
    let [routes, acl, exact, code, flows] = shown.objects.as_slice() else { panic!("{shown:?}") };
    assert_eq!(routes.rows[0].keys, [MatchView::Prefix("0xabc00".into(), 12)]);
    let forward = routes.rows[0].action.clone().unwrap();
    assert_eq!(forward.name, "pipe.forward");
    let params: Vec<_> = forward.params.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(params, [("port", "0x1ff"), ("mac", "0x010203040506")]);
    assert_eq!(routes.default_action.as_ref().unwrap().name, "pipe.drop");
    let ternary = MatchView::Ternary("0x10".into(), "0xf0".into());
    let range = MatchView::Range("0x0016".into(), "0x0050".into());
    assert_eq!(acl.rows[0].keys, [ternary, range, MatchView::Any]);
    assert_eq!(acl.rows[0].priority, Some(5));
    assert_eq!(exact.rows[0].packets, Some(7));
    assert_eq!((code.map.as_deref(), code.size), (None, 1));
    assert_eq!(code.rows[0].keys, [MatchView::Exact("0x0050".into())]);
    assert_eq!((flows.kind, flows.rows[0].raw.as_ref().unwrap().value.as_str()), (ObjectKind::Map, "030405"));
}

#[test]
fn objects_are_found_by_name_or_its_last_part() {
    let fake = sample();
    for name in ["pipe.routes", "routes"] {
        assert_eq!(fake.show(What::Tables, Some(name)).unwrap().objects.len(), 1, "{name}");
    }
    assert_eq!(fake.show(What::Tables, Some("outes")).unwrap().objects, []);
    assert_eq!(fake.show(What::Counters, Some("pipe.last")).unwrap().objects, [], "a register");
}

#[test]
fn without_a_schema_everything_is_shown_raw_with_a_hint() {
    let fake = sample();
    let show = |what, schema: &dyn Fn(&mut ProgramDescription)| {
        let mut ask = |request: Request| {
            let mut reply = fake.reply(&request)?;
            if let Reply::Description(d) = &mut reply {
                schema(d);
            }
            Ok(reply)
        };
        let inspection = Inspection { what, limit: Some(10), ..Inspection::default() };
        show(&mut ask, SLOT, &inspection).unwrap()
    };
    let none = |d: &mut ProgramDescription| (d.schema_len, d.schema) = (None, Vec::new());
    let newer = |d: &mut ProgramDescription| (d.schema_len, d.schema) = (Some(4), vec![99, 0, 0, 0]);
    let newer = |d: &mut ProgramDescription| {
        newer(d);
        if d.maps.len() != 1 || d.maps[0].name != "pipe_seen" {
            d.schema.clear();
        }
    };
    let shown = show(What::Registers, &none);
    assert_eq!(shown.objects.iter().map(|o| o.kind).collect::<Vec<_>>(), [ObjectKind::Map; 5]);
    assert!(shown.notes[0].contains("compile the P4 program again"), "{:?}", shown.notes);
    assert!(show(What::Tables, &newer).notes[0].contains("version 99"));
    assert_eq!(show(What::Counters, &none).objects, []);
}

#[test]
fn a_schema_that_does_not_fit_its_maps_is_not_believed() {
    let mut fake = sample();
    fake.schema.arrays[1].width = 4000;
    fake.schema.arrays[0].map = "pipe_routes".into();
    fake.schema.tables[2].counter.as_mut().unwrap().offset = u32::MAX;
    fake.schema.tables[0].keys[0].offset = u32::MAX;
    fake.schema.tables[1].key_size = u32::MAX;
    fake.schema.tables[2].actions.truncate(1);
    let shown = fake.show(What::Counters, None).unwrap();
    assert_eq!(shown.objects[0].rows[0].packets, None, "{shown:?}");
    let shown = fake.show(What::Tables, None).unwrap();
    assert!(shown.objects[..2].iter().all(|o| o.rows[0].raw.is_some()), "{shown:?}");
    assert_eq!(shown.objects[2].rows[0].action.as_ref().unwrap().name, "unknown action 1");
    let shown = fake.show(What::Registers, None).unwrap();
    assert!(shown.objects.iter().any(|o| o.kind == ObjectKind::Map && o.name == "pipe_last"), "{shown:?}");
}

#[test]
fn names_of_a_tenant_cannot_reach_the_terminal() {
    let mut fake = sample();
    fake.schema.arrays[0].name = "a\x1b[2J\nb".into();
    let name = fake.show(What::Counters, None).unwrap().objects[0].name.clone();
    assert_eq!(name, "a\u{fffd}[2J b");
}

/// Returns the error of reading the sample's first map when its parts are changed.
fn refused(change: impl Fn(&mut MapPart)) -> String {
    let fake = sample();
    let mut ask = |request: Request| {
        let mut reply = fake.reply(&request)?;
        if let Reply::MapPart(part) = &mut reply {
            change(part);
        }
        Ok(reply)
    };
    let described = describe(&mut ask, SLOT).unwrap();
    let extent = Extent { from: 0, limit: Some(10), bytes: 1 << 20, zeros: false };
    Remote { ask: &mut ask, slot: SLOT }.read(&described, 0, extent).unwrap_err()
}

#[test]
fn a_p4_vm_that_answers_with_rubbish_gives_an_error() {
    for (what, error) in [
        ("backwards", refused(|p| p.next = Some(0))),
        ("beyond the end", refused(|p| p.next = Some(1001))),
        ("too many", refused(|p| p.entries = (0..11).map(|n| (index(n), vec![1; 16])).collect())),
        ("more than slots", refused(|p| p.more = 501)),
        ("short key", refused(|p| p.entries = vec![(vec![1], vec![1; 16])])),
        ("short value", refused(|p| p.entries = vec![(index(1), vec![1; 15])])),
        ("twice", refused(|p| p.entries = vec![(index(1), vec![1; 16]); 2])),
        ("outside", refused(|p| p.entries = vec![(index(600), vec![1; 16])])),
    ] {
        assert!(error.contains("invalid answer"), "{what}: {error}");
    }
    let described = |change: &dyn Fn(&mut ProgramDescription)| {
        let fake = sample();
        let mut ask = |request: Request| match fake.reply(&request)? {
            Reply::Description(mut d) => {
                change(&mut d);
                Ok(Reply::Description(d))
            }
            other => Ok(other),
        };
        describe(&mut ask, SLOT).unwrap_err()
    };
    for error in [
        described(&|d| d.map_count = 2000),
        described(&|d| d.schema_len = Some(u32::MAX)),
        described(&|d| d.map_count = 0),
        described(&|d| d.schema_len = Some(1)),
        described(&|d| d.maps.clear()),
        described(&|d| d.maps.iter_mut().for_each(|m| m.definition[2] = 0)),
    ] {
        assert!(error.contains("invalid answer"), "{error}");
    }
    assert!(describe(&mut |_| Ok(Reply::Done), SLOT).unwrap_err().contains("invalid answer"));
    let replaced = std::cell::Cell::new(0);
    let error = described(&|d| {
        d.program[0] = replaced.get();
        replaced.set(1);
    });
    assert!(error.contains("replaced"), "{error}");
}

#[test]
fn any_replies_are_shown_or_refused() {
    let fake = sample();
    let seed = |what| {
        let mut bytes = Vec::new();
        let mut ask = |request: Request| {
            let reply = fake.reply(&request)?;
            let piece = encode(&Envelope { id: 1, body: reply.clone() }).unwrap();
            bytes.extend((piece.len() as u16).to_le_bytes());
            bytes.extend(piece);
            Ok(reply)
        };
        let inspection = Inspection { what, limit: Some(100), ..Inspection::default() };
        show(&mut ask, SLOT, &inspection).unwrap();
        bytes
    };
    let seeds = [What::Counters, What::Registers, What::Tables].map(seed);
    p4shield_testbed::campaign(&seeds, fuzz);
}

#[test]
fn a_page_ends_and_the_next_one_continues() {
    let mut fake = Fake::default();
    let entries = (0..400).map(|n| (index(n), vec![1; 8])).collect();
    fake.map("big", (TYPE_ARRAY, 4, 8), entries);
    let page = |from| {
        let inspection = Inspection { what: What::Registers, from, ..Inspection::default() };
        let mut asked = 0;
        let mut ask = |request: Request| {
            asked += 1;
            fake.reply(&request)
        };
        let described = describe(&mut ask, SLOT).unwrap();
        let all = objects(&described, What::Registers);
        let extent = Extent { from, limit: None, bytes: 1000, zeros: false };
        let view = all[0].view(&mut Remote { ask: &mut ask, slot: SLOT }, &described, extent);
        view.map(|view| (inspection.from, view)).unwrap().1
    };
    // The bytes of the first part fill the page.
    let first = page(0);
    assert_eq!((first.rows.len(), first.more, first.next), (400, 0, Some(500)));
    let second = page(500);
    assert_eq!((second.rows.len(), second.next), (0, None));
}
