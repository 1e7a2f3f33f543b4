//! Compiled arithmetic compared with big integers: every operator at widths from 1 to 128 bits,
//! signed and unsigned.

use crate::common::{Bench, program};
use num_bigint::{BigInt, Sign};
use num_traits::{One, Signed, ToPrimitive, Zero};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// An expression over the fields `a`, `b` and `c`, all of one type.
#[derive(Clone, Debug)]
enum E {
    Field(usize),
    Const(u64),
    Unary(&'static str, Box<E>),
    Binary(&'static str, Box<E>, Box<E>),
    /// A shift by a constant, or by the lowest bits of a field.
    Shift(&'static str, Box<E>, Result<u32, usize>),
    /// `c ? x : y` with a comparison.
    If(&'static str, Box<E>, Box<E>, Box<E>, Box<E>),
    /// A rotation: the lowest bits concatenated with the others.
    Turn(Box<E>, u32),
    /// Cast to a narrower or wider type and back.
    Cast(Box<E>, u32),
}

#[derive(Clone, Copy, Debug)]
struct Ty {
    width: u32,
    signed: bool,
}

impl Ty {
    fn text(self, width: u32) -> String {
        format!("{}<{width}>", if self.signed { "int" } else { "bit" })
    }

    fn wrap(self, v: &BigInt, width: u32) -> BigInt {
        let r: BigInt = v & ((BigInt::one() << width) - 1);
        if self.signed && r.bit(u64::from(width) - 1) { r - (BigInt::one() << width) } else { r }
    }

    fn source(self, e: &E) -> String {
        let s = |e: &E| self.source(e);
        let w = self.width;
        let cast = self.text(w);
        match e {
            E::Field(i) => format!("hdr.h.{}", ["a", "b", "c"][*i]),
            E::Const(c) => {
                let v = self.wrap(&BigInt::from(*c), w);
                if v.is_negative() {
                    format!("(({cast})({v}))")
                } else {
                    format!("{w}{}{v}", if self.signed { 's' } else { 'w' })
                }
            }
            E::Unary(op, a) => format!("({op}{})", s(a)),
            E::Binary(op, a, b) => format!("({} {op} {})", s(a), s(b)),
            E::Shift(op, a, Ok(n)) => format!("({} {op} {n})", s(a)),
            E::Shift(op, a, Err(f)) => format!("({} {op} (bit<8>)hdr.h.{})", s(a), ["x", "y", "z"][*f]),
            E::If(op, a, b, x, y) => format!("({} {op} {} ? {} : {})", s(a), s(b), s(x), s(y)),
            E::Turn(a, n) if w > 1 => {
                let n = 1 + n % (w - 1);
                format!("(({cast})(({})[{}:0] ++ ({})[{}:{n}]))", s(a), n - 1, s(a), w - 1)
            }
            E::Turn(a, _) => s(a),
            E::Cast(a, n) => format!("(({cast})({})({}))", self.text(*n), s(a)),
        }
    }

    fn value(self, e: &E, fields: &[BigInt; 3], shifts: [u8; 3]) -> BigInt {
        let v = |e: &E| self.value(e, fields, shifts);
        let w = self.width;
        let raw = match e {
            E::Field(i) => fields[*i].clone(),
            E::Const(c) => BigInt::from(*c),
            E::Unary("-", a) => -v(a),
            E::Unary(_, a) => !v(a),
            E::Binary(op, a, b) => self.binary(op, &v(a), &v(b)),
            E::Shift(op, a, n) => {
                let n = match n {
                    Ok(n) => *n,
                    Err(f) => u32::from(shifts[*f]),
                };
                if *op == "<<" { v(a) << n } else { v(a) >> n }
            }
            E::If(op, a, b, x, y) => {
                let (a, b) = (v(a), v(b));
                let c = match *op {
                    "==" => a == b,
                    "!=" => a != b,
                    "<" => a < b,
                    "<=" => a <= b,
                    ">" => a > b,
                    _ => a >= b,
                };
                if c { v(x) } else { v(y) }
            }
            E::Turn(a, n) if w > 1 => {
                let n = 1 + n % (w - 1);
                let u: BigInt = v(a) & ((BigInt::one() << w) - 1);
                let low: BigInt = &u & ((BigInt::one() << n) - 1);
                (low << (w - n)) + (u >> n)
            }
            E::Turn(a, _) => v(a),
            E::Cast(a, n) => self.wrap(&v(a), *n),
        };
        self.wrap(&raw, w)
    }

    fn binary(self, op: &str, a: &BigInt, b: &BigInt) -> BigInt {
        let (min, max) = if self.signed {
            let half = BigInt::one() << (self.width - 1);
            (-half.clone(), half - 1)
        } else {
            (BigInt::zero(), (BigInt::one() << self.width) - 1)
        };
        match op {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "&" => a & b,
            "|" => a | b,
            "^" => a ^ b,
            "|+|" => (a + b).clamp(min, max),
            "|-|" => (a - b).clamp(min, max),
            // As eBPF defines it.
            "/" => {
                if b.is_zero() {
                    BigInt::zero()
                } else {
                    a / b
                }
            }
            _ => {
                if b.is_zero() {
                    a.clone()
                } else {
                    a % b
                }
            }
        }
    }
}

fn expression(ty: Ty) -> impl Strategy<Value = E> {
    let leaf = prop_oneof![3 => (0usize..3).prop_map(E::Field), 1 => edge().prop_map(E::Const)];
    leaf.prop_recursive(4, 24, 3, move |e| {
        let mut operators = vec!["+", "-", "&", "|", "^"];
        if ty.width <= 64 {
            operators.extend(["*", "|+|", "|-|"]);
            if !ty.signed {
                operators.extend(["/", "%"]);
            }
        }
        let distance = if ty.width <= 64 {
            prop_oneof![(0u32..70).prop_map(Ok), (0usize..3).prop_map(Err)].boxed()
        } else {
            (0u32..140).prop_map(Ok).boxed()
        };
        let b = |e: E| Box::new(e);
        let comparison = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
        prop_oneof![
            (prop::sample::select(vec!["-", "~"]), e.clone()).prop_map(move |(o, x)| E::Unary(o, b(x))),
            (prop::sample::select(operators), e.clone(), e.clone(), 0usize..3).prop_map(
                move |(o, x, y, f)| {
                    // The compiler refuses a divisor that is zero at compile time.
                    let y = if matches!(o, "/" | "%") { E::Field(f) } else { y };
                    E::Binary(o, b(x), b(y))
                }
            ),
            (prop::sample::select(vec!["<<", ">>"]), e.clone(), distance)
                .prop_map(move |(o, x, n)| E::Shift(o, b(x), n)),
            (comparison, e.clone(), e.clone(), e.clone(), e.clone()).prop_map(move |(o, x, y, t, f)| E::If(
                o,
                b(x),
                b(y),
                b(t),
                b(f)
            )),
            (e.clone(), any::<u32>()).prop_map(move |(x, n)| E::Turn(b(x), n)),
            (e, 1u32..100).prop_map(move |(x, n)| E::Cast(b(x), n)),
        ]
    })
}

/// Generates numbers at which carries and signs change.
fn edge() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..4,
        (0u32..64).prop_map(|n| 1 << n),
        (0u32..64).prop_map(|n| (1u64 << n) - 1),
        Just(u64::MAX),
    ]
}

/// Builds the packet: fields of whole bytes with the values in their lowest bits.
fn packet(ty: Ty, fields: &[BigInt; 3], shifts: [u8; 3]) -> Vec<u8> {
    let bytes = ty.width.div_ceil(8) as usize;
    let mut p = vec![0; 3];
    for f in fields {
        let u: BigInt = f & ((BigInt::one() << ty.width) - 1);
        let digits = u.to_bytes_be().1;
        p.extend(std::iter::repeat_n(0, bytes - digits.len().min(bytes)));
        p.extend(&digits[digits.len() - digits.len().min(bytes)..]);
    }
    p.resize(3 + 4 * bytes, 0);
    p[..3].copy_from_slice(&shifts);
    p
}

fn run(ty: Ty, e: &E, inputs: &[([u64; 6], [u8; 3])]) {
    let bytes = ty.width.div_ceil(8);
    let pad = bytes * 8 - ty.width;
    let mut header = String::from("bit<8> x; bit<8> y; bit<8> z;");
    for f in ["a", "b", "c", "r"] {
        if pad > 0 {
            header.push_str(&format!(" bit<{pad}> pad_{f};"));
        }
        header.push_str(&format!(" {} {f};", ty.text(ty.width)));
    }
    let source = program(&header, "", "", &format!("hdr.h.r = {};", ty.source(e)));
    let mut b = Bench::new(&source);
    for (words, shifts) in inputs {
        let wide =
            |i: usize| ty.wrap(&((BigInt::from(words[i + 3]) << 64) + BigInt::from(words[i])), ty.width);
        let fields = [wide(0), wide(1), wide(2)];
        let want = ty.value(e, &fields, *shifts);
        let out = b.passes(&packet(ty, &fields, *shifts));
        let got = BigInt::from_bytes_be(Sign::Plus, &out[3 + 3 * bytes as usize..]);
        let want: BigInt = want & ((BigInt::one() << ty.width) - 1);
        assert_eq!(
            got,
            want,
            "{} of {fields:?} {shifts:?}\n{}\n{}",
            ty.source(e),
            b.compiled.ir,
            b.compiled.asm
        );
    }
}

fn campaign(signed: bool, widths: &'static [u32], cases: u32) {
    let strategy = prop::sample::select(widths).prop_flat_map(move |width| {
        let ty = Ty { width, signed };
        let input = (prop::array::uniform6(edge()), prop::array::uniform3(0u8..80));
        (Just(ty), expression(ty), prop::collection::vec(input, 8))
    });
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&strategy, |(ty, e, inputs)| {
        run(ty, &e, &inputs);
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}

/// Returns the number of cases.
fn cases(quick: u32) -> u32 {
    p4shield_need::extent(quick, 20 * quick)
}

#[test]
fn unsigned_arithmetic_wraps_at_the_declared_width() {
    campaign(false, &[1, 2, 4, 7, 8, 12, 16, 24, 31, 32, 33, 48, 63, 64], cases(200));
}

#[test]
fn signed_arithmetic_wraps_at_the_declared_width() {
    campaign(true, &[2, 4, 8, 15, 16, 24, 32, 40, 48, 64], cases(150));
}

#[test]
fn arithmetic_of_more_than_64_bits() {
    campaign(false, &[65, 72, 96, 127, 128], cases(80));
    campaign(true, &[65, 96, 128], cases(40));
}

#[test]
fn the_oracle_computes_known_values() {
    let ty = Ty { width: 4, signed: true };
    let f = [BigInt::from(7), BigInt::from(1), BigInt::from(-8)];
    let sum = E::Binary("+", Box::new(E::Field(0)), Box::new(E::Field(1)));
    assert_eq!(ty.value(&sum, &f, [0; 3]).to_i64(), Some(-8));
    let sat = E::Binary("|-|", Box::new(E::Field(2)), Box::new(E::Field(1)));
    assert_eq!(ty.value(&sat, &f, [0; 3]).to_i64(), Some(-8));
}

/// PREVAIL knows these values less exactly than it could, or would get their sign wrong.
#[test]
fn the_verifier_follows_wide_differences() {
    let out = |body: &str, packet: &[u8]| {
        let text = program("bit<8> a; bit<8> b; bit<136> wide;", "", "", body);
        Bench::new(&text).passes(packet)[2..19].to_vec()
    };
    let packet = [&[1, 2][..], &[0; 30]].concat();
    let difference = "hdr.h.wide = (bit<136>)(~(bit<128>)hdr.h.b - (bit<128>)hdr.h.a);";
    assert_eq!(out(difference, &packet), [&[0][..], &[0xff; 15], &[0xfc]].concat());
    let saturated = "int<72> z = (int<72>)(int<8>)hdr.h.b * 72s0x1234567;\n\
        int<72> sum = (int<72>)(bit<72>)hdr.h.a + (int<72>)(bit<72>)hdr.h.b;\n\
        bool less = (z |-| sum) < 72s140737488355327;\n\
        hdr.h.wide = less ? 136w1 : 2;";
    assert_eq!(out(saturated, &packet)[16], 1);
}
