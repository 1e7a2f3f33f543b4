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
fn exponential_macros_end() {
    let mut t = String::from("#define A0 x x\n");
    for i in 1..40 {
        t.push_str(&format!("#define A{i} A{} A{}\n", i - 1, i - 1));
    }
    t.push_str("A39");
    assert_eq!(run(&t, vec![]).1, [Code::TooLarge]);
}
