use super::*;
use std::collections::{BTreeMap, HashMap};

fn map(map_type: u32, key_size: u32, max_entries: u32) -> Map {
    let definition = MapDefinition { map_type, key_size, value_size: 4, max_entries, flags: 0 };
    let declared = Declared { name: "m".to_owned(), definition };
    bytes_of(&declared).expect("a sound definition");
    Map::new(&declared).expect("memory")
}

/// A deterministic generator, so that every run of a campaign is the same.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

#[test]
fn arrays_are_indexed() {
    let mut m = map(TYPE_ARRAY, 4, 3);
    let key = |i: u32| i.to_ne_bytes();
    assert_eq!(m.lookup(&key(2)), Ok(vec![0; 4]));
    assert_eq!(m.lookup(&key(3)), Err(MapError::NotFound));
    assert_eq!(m.update(&key(1), &[1, 2, 3, 4], UpdateFlag::Any), Ok(()));
    assert_eq!(m.update(&key(1), &[1, 2, 3, 4], UpdateFlag::NoExist), Err(MapError::Exists));
    assert_eq!(m.update(&key(3), &[1, 2, 3, 4], UpdateFlag::Any), Err(MapError::Full));
    assert_eq!(m.update(&key(1), &[1, 2, 3], UpdateFlag::Any), Err(MapError::Invalid));
    assert_eq!(m.delete(&key(1)), Err(MapError::Invalid));
    assert_eq!(m.lookup(&[0; 5]), Err(MapError::Invalid));
    assert_eq!(m.iter().count(), 3);
}

#[test]
fn hashes_agree_with_a_model() {
    let mut m = map(TYPE_HASH, 3, 50);
    let mut model: HashMap<[u8; 3], [u8; 4]> = HashMap::new();
    let mut rng = Rng(1);
    for _ in 0..20_000 {
        let key = [(rng.next() % 5) as u8, (rng.next() % 5) as u8, (rng.next() % 4) as u8];
        let value = (rng.next() as u32).to_ne_bytes();
        match rng.next() % 4 {
            0 => {
                let expected = model.remove(&key).map(drop).ok_or(MapError::NotFound);
                assert_eq!(m.delete(&key), expected);
            }
            1 => assert_eq!(m.lookup(&key).ok(), model.get(&key).map(|v| v.to_vec())),
            _ if model.contains_key(&key) || model.len() < 50 => {
                model.insert(key, value);
                assert_eq!(m.update(&key, &value, UpdateFlag::Any), Ok(()));
            }
            _ => assert_eq!(m.update(&key, &value, UpdateFlag::Any), Err(MapError::Full)),
        }
    }
    let mut all: Vec<_> = m.iter().collect();
    let mut expected: Vec<_> = model.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
}

fn lpm_key(len: u32, data: &[u8]) -> Vec<u8> {
    [&len.to_ne_bytes(), data].concat()
}

/// Returns the first `len` bits of `data`.
fn masked(data: &[u8], len: u32) -> Vec<u8> {
    let keep = |i: usize| (len as usize).saturating_sub(i * 8).min(8);
    data.iter().enumerate().map(|(i, b)| b & !(0xffu16 >> keep(i)) as u8).collect()
}

fn lpm_model(model: &BTreeMap<(u32, Vec<u8>), [u8; 4]>, data: &[u8]) -> Option<Vec<u8>> {
    let bits = data.len() as u32 * 8;
    (0..=bits).rev().find_map(|len| model.get(&(len, masked(data, len))).map(|v| v.to_vec()))
}

fn lpm_campaign(bytes: usize, entries: u32, rounds: usize) {
    let mut m = map(TYPE_LPM_TRIE, 4 + bytes as u32, entries);
    let mut model = BTreeMap::new();
    let mut rng = Rng(bytes as u64);
    for round in 0..rounds {
        // Few distinct bytes, so that prefixes overlap.
        let data: Vec<u8> = (0..bytes).map(|_| [0x00, 0x80, 0xff, 0x0f][rng.next() as usize % 4]).collect();
        let len = (rng.next() % (bytes as u64 * 8 + 1)) as u32;
        let value = (round as u32).to_ne_bytes();
        let exact = (len, masked(&data, len));
        match rng.next() % 5 {
            0 | 1 => {
                let expected = model.remove(&exact).map(drop).ok_or(MapError::NotFound);
                assert_eq!(m.delete(&lpm_key(len, &data)), expected);
            }
            2 | 3 if model.contains_key(&exact) || model.len() < entries as usize => {
                model.insert(exact, value);
                assert_eq!(m.update(&lpm_key(len, &data), &value, UpdateFlag::Any), Ok(()));
            }
            2 | 3 => assert_eq!(m.update(&lpm_key(len, &data), &value, UpdateFlag::Any), Err(MapError::Full)),
            _ => {
                let found = m.lookup(&lpm_key(bytes as u32 * 8, &data)).ok();
                assert_eq!(found, lpm_model(&model, &data), "round {round}");
            }
        }
    }
    let mut all: Vec<_> = m.iter().collect();
    let mut expected: Vec<_> = model.iter().map(|((l, d), v)| (lpm_key(*l, d), v.to_vec())).collect();
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
    for (key, _) in all {
        assert_eq!(m.delete(&key), Ok(()));
    }
    assert_eq!(m.iter().count(), 0);
}

#[test]
fn lpm_tries_agree_with_a_model() {
    lpm_campaign(4, 60, 20_000);
    lpm_campaign(16, 100, 20_000);
    lpm_campaign(32, 40, 5_000);
    lpm_campaign(1, 300, 20_000);
    // An index with as many bits as the keys have, and one with the maximum number of bits.
    lpm_campaign(2, 20_000, 10_000);
    lpm_campaign(4, 20_000, 10_000);
}

#[test]
fn lpm_tries_hold_thousands_of_prefixes() {
    let mut m = map(TYPE_LPM_TRIE, 8, 10_000);
    for i in 0..10_000u32 {
        let data = (i << 16).to_be_bytes();
        let len = 16 + i % 17;
        m.update(&lpm_key(len, &data), &i.to_ne_bytes(), UpdateFlag::NoExist).expect("room");
    }
    assert_eq!(m.update(&lpm_key(9, &[1; 4]), &[0; 4], UpdateFlag::Any), Err(MapError::Full));
    for i in (0..10_000u32).step_by(7) {
        assert_eq!(m.lookup(&lpm_key(32, &(i << 16).to_be_bytes())), Ok(i.to_ne_bytes().to_vec()));
    }
    assert_eq!(m.lookup(&lpm_key(32, &[255; 4])), Err(MapError::NotFound));
    assert_eq!(m.lookup(&lpm_key(33, &[255; 4])), Err(MapError::NotFound), "a length beyond the key's");
    assert_eq!(m.update(&lpm_key(33, &[0; 4]), &[0; 4], UpdateFlag::Any), Err(MapError::Invalid));
}

#[test]
fn invalid_definitions_are_refused() {
    let cases = [
        (TYPE_ARRAY, 8, 4, 1, 0, "4 bytes"),
        (TYPE_HASH, 0, 4, 1, 0, "1 to 512"),
        (TYPE_HASH, 513, 4, 1, 0, "1 to 512"),
        (TYPE_LPM_TRIE, 4, 4, 1, 0, "5 to 36"),
        (TYPE_LPM_TRIE, 37, 4, 1, 0, "5 to 36"),
        (TYPE_HASH, 4, 0, 1, 0, "1 to 65536"),
        (TYPE_HASH, 4, 65_537, 1, 0, "1 to 65536"),
        (TYPE_HASH, 4, 4, 0, 0, "at least 1 entry"),
        (TYPE_HASH, 4, 4, 1, 8, "flags"),
        (6, 4, 4, 1, 0, "type 6"),
    ];
    for (map_type, key_size, value_size, max_entries, flags, what) in cases {
        let definition = MapDefinition { map_type, key_size, value_size, max_entries, flags };
        let e = Maps::new(&[Declared { name: "t".to_owned(), definition }], &[], usize::MAX).unwrap_err();
        assert!(e.to_string().contains(what), "{e}");
    }
}

#[test]
fn memory_is_limited_before_allocation() {
    let definition = MapDefinition {
        map_type: TYPE_HASH,
        key_size: 512,
        value_size: MAX_VALUE_SIZE,
        max_entries: u32::MAX,
        flags: 0,
    };
    let declared = vec![Declared { name: "huge".to_owned(), definition }; MAX_MAPS];
    assert!(matches!(Maps::new(&declared, &[], 1 << 30), Err(MapsError::TooLarge { .. })));
}

/// A map executes or refuses any operation of the control plane, and never exceeds its capacity.
#[test]
fn any_operation_is_executed_or_refused() {
    let mut rng = Rng(0x5eed);
    let mut bytes = |n: u64| -> Vec<u8> {
        let len = if rng.next().is_multiple_of(4) { rng.next() % 40 } else { n };
        (0..len).map(|_| [0, 1, 0x80, 0xff, rng.next() as u8][rng.next() as usize % 5]).collect()
    };
    for (map_type, key_size, flags) in [
        (TYPE_ARRAY, 4, 0),
        (TYPE_HASH, 3, 0),
        (TYPE_LPM_TRIE, 4 + 5, 0),
        (TYPE_CLASSIFIER, 6, 0),
        (TYPE_CLASSIFIER, 6, 0x12),
    ] {
        let definition = MapDefinition { map_type, key_size, value_size: 4, max_entries: 20, flags };
        let declared = [Declared { name: "m".to_owned(), definition }];
        let mut maps = Maps::with_definitions(&declared, 1 << 24).expect("a sound definition");
        let m = maps.get_mut("m").expect("the map");
        let size = u64::from(m.entry_key_size());
        for round in 0..4_000usize {
            let (key, value) = (bytes(size), bytes(4));
            let flag = [UpdateFlag::Any, UpdateFlag::NoExist, UpdateFlag::Exist][round % 3];
            if m.update(&key, &value, flag).is_ok() {
                assert_eq!(m.entry(&key), Ok(value));
            }
            if round.is_multiple_of(3) && m.delete(&key).is_ok() {
                assert_eq!(m.entry(&key), Err(MapError::NotFound));
            }
            let found = m.lookup(&bytes(u64::from(key_size)));
            assert!(found.is_ok_and(|v| v.len() == 4) || m.iter().count() <= 20);
        }
        assert!(m.iter().count() <= 20);
    }
}

/// Keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns all entries that parts of a map have, and the number of parts.
fn copied(map: &Map) -> (Entries, usize) {
    let mut copy = MapCopy::new(map.definition(), 0);
    let (mut entries, mut parts) = (Vec::new(), 0);
    while copy.next().is_some() {
        let before = copy.next();
        assert!(map.copy_part(&mut copy) && copy.next() != before);
        entries.extend(copy.entries().map(|(k, v)| (k.to_vec(), v.to_vec())));
        parts += 1;
    }
    (entries, parts)
}

#[test]
fn parts_of_a_map_are_its_entries() {
    for (map_type, key_size, value_size, entries) in [
        (TYPE_ARRAY, 4, 16, 1000),
        (TYPE_ARRAY, 4, 60_000, 3),
        (TYPE_HASH, 6, 24, 700),
        (TYPE_LPM_TRIE, 8, 8, 300),
        (TYPE_CLASSIFIER, 4, 8, 300),
    ] {
        let definition = MapDefinition { map_type, key_size, value_size, max_entries: entries, flags: 0 };
        let mut map = Map::new(&Declared { name: "m".into(), definition }).unwrap();
        for n in (0..entries).step_by(3) {
            let mut key = vec![0; map.entry_key_size() as usize];
            match map_type {
                TYPE_ARRAY => key = n.to_ne_bytes().to_vec(),
                TYPE_LPM_TRIE => key = [32_u32.to_ne_bytes(), n.to_be_bytes()].concat(),
                TYPE_CLASSIFIER => key = [[1; 4], n.to_be_bytes(), [0xff; 4]].concat(),
                _ => key[..4].copy_from_slice(&n.to_ne_bytes()),
            }
            map.update(&key, &vec![n as u8; value_size as usize], UpdateFlag::Any).unwrap();
        }
        let (entries, parts) = copied(&map);
        assert_eq!(entries, map.iter().collect::<Vec<_>>(), "type {map_type}");
        assert!(parts > 1, "{parts} parts of type {map_type}");
    }
}

#[test]
fn a_part_is_not_copied_from_a_map_of_another_shape() {
    let map = |value_size| {
        let definition =
            MapDefinition { map_type: TYPE_ARRAY, key_size: 4, value_size, max_entries: 9, flags: 0 };
        Map::new(&Declared { name: "m".into(), definition }).unwrap()
    };
    let mut copy = MapCopy::new(map(8).definition(), 0);
    assert!(!map(16).copy_part(&mut copy) && copy.next() == Some(0));
    assert!(map(8).copy_part(&mut copy) && copy.next().is_none() && copy.entries().count() == 9);
}

#[test]
fn a_map_takes_the_entries_of_another_one() {
    let prefix = |first| [&32_u32.to_le_bytes()[..], &[first, 2, 3, 4]].concat();
    // A rule: priority, value, mask.
    let rule = |first| [&1_u32.to_le_bytes()[..], &[first, 2, 3, 4], &[0xff; 4]].concat();
    for (map_type, key_size, key, other) in [
        (TYPE_ARRAY, 4, vec![1, 0, 0, 0], vec![2, 0, 0, 0]),
        (TYPE_HASH, 4, vec![1, 2, 3, 4], vec![2, 0, 0, 0]),
        (TYPE_LPM_TRIE, 8, prefix(1), prefix(2)),
        (TYPE_CLASSIFIER, 4, rule(1), rule(2)),
    ] {
        let (mut old, mut new) = (map(map_type, key_size, 3), map(map_type, key_size, 3));
        old.update(&key, &[1, 2, 3, 4], UpdateFlag::Any).unwrap();
        new.update(&other, &[9; 4], UpdateFlag::Any).unwrap();
        let expected: Vec<_> = old.iter().collect();
        assert_eq!(new.take(&mut old), Ok(()));
        assert_eq!(new.iter().collect::<Vec<_>>(), expected);
        // It goes on as the other one would have.
        assert_eq!(new.update(&other, &[5; 4], UpdateFlag::Any), Ok(()));
        assert_eq!((new.entry(&key), new.entry(&other)), (Ok(vec![1, 2, 3, 4]), Ok(vec![5; 4])));
        assert_eq!(new.take(&mut map(map_type, key_size, 4)), Err(MapError::Invalid));
    }
}
