use super::*;

struct Files(Vec<(&'static str, &'static str)>);

impl Resolver for Files {
    fn resolve(&self, path: &str, _: bool, _: &str) -> Option<Included> {
        let (n, t) = self.0.iter().find(|(n, _)| *n == path)?;
        Some(Included { name: (*n).to_owned(), text: (*t).to_owned() })
    }
}

fn run(text: &str, files: Vec<(&'static str, &'static str)>) -> (String, Vec<Code>) {
    let (mut sources, mut sink) = (SourceMap::default(), Sink::default());
    let toks = preprocess("t.p4", text, &[], &Files(files), &mut sources, &mut sink);
    let words = toks.iter().map(|t| match &t.tok {
        Tok::Ident(n) | Tok::Int(n) | Tok::Str(n) => n.to_string(),
        Tok::Word(s) | Tok::Sym(s) => (*s).to_owned(),
        Tok::Other(c) => c.to_string(),
        Tok::Eof => String::new(),
    });
    let text = words.collect::<Vec<_>>().join(" ").trim().to_owned();
    (text, sink.into_items().into_iter().map(|d| d.code).collect())
}

#[test]
fn macros_expand() {
    assert_eq!(run("#define A 1 + B\n#define B A\nA", vec![]).0, "1 + A");
    assert_eq!(run("#define F(x, y) (x * y)\nF(F(1,2), (3,4))", vec![]).0, "( ( 1 * 2 ) * ( 3 , 4 ) )");
    assert_eq!(run("#define G (x)\nG", vec![]).0, "( x )");
    assert_eq!(run("#define F(x) x\nF + F\n(2)", vec![]).0, "F + 2");
    assert_eq!(run("#define L a \\\n b\nL c", vec![]).0, "a b c");
}

#[test]
fn conditionals_choose() {
    let t = "#define V 3\n#if V >= 2 && !defined(Q)\na\n#elif 1\nb\n#else\nc\n#endif\n\
                 #ifdef V\nd\n#endif\n#ifndef V\ne\n#endif";
    assert_eq!(run(t, vec![]).0, "a d");
    let nested = "#if 0\n#if 1\na\n#else\nb\n#endif\n#bogus\n#else\nc\n#endif";
    assert_eq!(run(nested, vec![]), ("c".to_owned(), vec![]));
}

#[test]
fn includes_come_from_models_and_resolver() {
    let (t, e) = run("#include <core.p4>\n#include \"x.p4\"\n", vec![("x.p4", "mine")]);
    assert!(t.contains("extract") && t.ends_with("mine") && e.is_empty());
    assert_eq!(run("#include <nope.p4>", vec![]).1, [Code::IncludeNotFound]);
    assert_eq!(run("#include \"x.p4\"", vec![("x.p4", "#include \"x.p4\"")]).1, [Code::TooDeep]);
}

#[test]
fn mistakes_get_the_right_code() {
    assert_eq!(run("#if 1", vec![]).1, [Code::UnbalancedConditional]);
    assert_eq!(run("#endif", vec![]).1, [Code::UnbalancedConditional]);
    assert_eq!(run("#if 1 +\n#endif", vec![]).1, [Code::BadDirective]);
    assert_eq!(run("#define", vec![]).1, [Code::BadDirective]);
    assert_eq!(run("#error no", vec![]).1, [Code::UserError]);
    assert_eq!(run("a # b", vec![]).1, [Code::BadCharacter]);
    assert_eq!(run("#define F(x) x\nF(1,2)", vec![]).1, [Code::BadDirective]);
}

#[test]
fn two_tokens_are_joined_to_one() {
    let joined = |text: &str| {
        let (t, errors) = run(text, vec![]);
        assert_eq!(errors, [], "{text}");
        t
    };
    assert_eq!(
        joined("#define CAT(a, b) a##b\nCAT(mix_, 0) CAT(8w, 0x10) CAT(ap, ply)"),
        "mix_0 8w0x10 apply"
    );
    assert_eq!(joined("#define P a ## b ## 1\nP"), "ab1", "also without parameters");
    assert_eq!(
        joined("#define SHIFT(a, b) x a##b 1\nSHIFT(>, >) SHIFT(<, <) SHIFT(&, &)"),
        "x > > 1 x << 1 x && 1"
    );
    assert_eq!(joined("#define A(x) x##>##>##=\nA()"), "> >=");
    assert_eq!(
        joined("#define C(a, b) z a##b z\nC(,) C(x,) C(,y) C(1 2, 3 4)"),
        "z z z x z z y z z 1 23 4 z"
    );
    // Operands are not expanded, except through another macro; the result is.
    let nested = "#define CAT(a, b) a##b\n#define X(a, b) CAT(a, b)\n#define N 1\n#define M1 done\n";
    assert_eq!(joined(&format!("{nested}CAT(M, N) X(M, N) CAT(M, 1)")), "MN done done");
    assert_eq!(joined(&format!("{nested}#define Y(a) a a##2\nY(N)")), "1 N2");
}

#[test]
fn an_argument_becomes_text() {
    let text = |argument: &str| run(&format!("#define N 1\n#define S(x) #x\nS({argument})"), vec![]);
    for (argument, text_of) in [
        ("extra", "extra"),
        (" a  +b /* c */ N ", "a +b N"),
        ("\"q\\\"\\\\\"", "\"q\\\"\\\\\""),
        ("", ""),
        ("a\nb", "a b"),
        ("f(1,2)", "f(1,2)"),
    ] {
        assert_eq!(text(argument), (text_of.to_owned(), vec![]));
    }
    assert_eq!(run("#define S(x) #x\n#define T(x) S(x)\n#define N 1\nT(N)", vec![]).0, "1");
    assert_eq!(run("#define S(x) # x y\nS(a)", vec![]).0, "a y");
}

/// Returns code and place of each error, and whether all have hints.
fn places(text: &str) -> (Vec<(Code, u32, u32)>, bool) {
    let (mut sources, mut sink) = (SourceMap::default(), Sink::default());
    preprocess("t.p4", text, &[], &NoIncludes, &mut sources, &mut sink);
    let items = sink.into_items();
    let hints = items.iter().all(|d| d.hint.is_some());
    (items.iter().map(|d| (d.code, d.span.start, d.span.end)).collect(), hints)
}

#[test]
fn macro_operators_without_operands_are_refused() {
    for (text, start, end) in [
        ("#define A ## b", 10, 12),
        ("#define A b ##", 12, 14),
        ("#define F(x) x ##", 15, 17),
        ("#define F(x) a ## ## x", 18, 20),
        ("#define F(x) #y", 13, 14),
        ("#define F(x) #", 13, 14),
        ("#define F(x) + ## x\nF(y)", 15, 17),
        ("#define F(x) x ## 1\nF(\"t\")", 15, 17),
        ("#define F(x) / ## x\nF(/)", 15, 17),
        ("#define F(x) x ## *\nF(/)", 15, 17),
    ] {
        assert_eq!(places(text), (vec![(Code::BadDirective, start, end)], true), "{text}");
    }
    // What is no integer is reported where it is used.
    assert_eq!(places("#define P(a) 8w##a\nP(x)").0, [(Code::BadCharacter, 19, 20)]);
    assert_eq!(places("#define P 8w\n#if 0\n9z\n#endif").0, []);
}

#[test]
fn macros_that_join_long_names_end() {
    let calls = format!("{}x{}", "D(".repeat(60), ")".repeat(60));
    let t = format!("#define C(a, b) a##b\n#define D(x) C(x, x)\n{calls}");
    assert_eq!(run(&t, vec![]).1, [Code::TooLarge]);
    let t = format!("#define L(x) a{}\nL({})", "##x".repeat(20_000), "y".repeat(20_000));
    assert_eq!(run(&t, vec![]).1, [Code::TooLarge]);
}

#[test]
fn exponential_macros_end() {
    let mut t = String::from("#define A0 x x\n");
    for i in 1..40 {
        t.push_str(&format!("#define A{i} A{} A{}\n", i - 1, i - 1));
    }
    t.push_str("A39");
    assert_eq!(run(&t, vec![]).1, [Code::TooLarge]);
}
