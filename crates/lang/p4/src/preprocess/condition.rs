//! Evaluation of the expressions of `#if`: C's integer expressions with 64 bits.

use crate::lexer::{Tok, Token};
use num_traits::ToPrimitive;

/// Evaluates a condition; names that are not macros count as 0.
pub(super) fn evaluate(tokens: &[Token]) -> Result<i64, String> {
    let mut e = Evaluator { tokens, at: 0, depth: 0 };
    let v = e.ternary()?;
    if e.at == tokens.len() { Ok(v) } else { Err("unexpected token after the condition".to_owned()) }
}

struct Evaluator<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

/// Returns the precedence of a binary operator; `None` if `op` is not one.
fn binding(op: &str) -> Option<u8> {
    Some(match op {
        "||" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | ">" | "<=" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => return None,
    })
}

fn apply(op: &str, a: i64, b: i64) -> Result<i64, String> {
    let truth = |c: bool| Ok(i64::from(c));
    match op {
        "||" => truth(a != 0 || b != 0),
        "&&" => truth(a != 0 && b != 0),
        "|" => Ok(a | b),
        "^" => Ok(a ^ b),
        "&" => Ok(a & b),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<" => truth(a < b),
        ">" => truth(a > b),
        "<=" => truth(a <= b),
        ">=" => truth(a >= b),
        "<<" => Ok(a.wrapping_shl(b as u32)),
        ">>" => Ok(a.wrapping_shr(b as u32)),
        "+" => Ok(a.wrapping_add(b)),
        "-" => Ok(a.wrapping_sub(b)),
        "*" => Ok(a.wrapping_mul(b)),
        "/" if b != 0 => Ok(a.wrapping_div(b)),
        "%" if b != 0 => Ok(a.wrapping_rem(b)),
        _ => Err("division by zero in a condition".to_owned()),
    }
}

impl Evaluator<'_> {
    fn operator(&self) -> Option<(&'static str, usize)> {
        let Some(Tok::Sym(s)) = self.tokens.get(self.at).map(|t| &t.tok) else { return None };
        let next = self.tokens.get(self.at + 1);
        if *s == ">" && next.is_some_and(|t| t.tok == Tok::Sym(">") && !t.spaced) {
            return Some((">>", 2));
        }
        Some((s, 1))
    }

    fn ternary(&mut self) -> Result<i64, String> {
        let c = self.binary(0)?;
        if !self.eat("?") {
            return Ok(c);
        }
        let a = self.ternary()?;
        if !self.eat(":") {
            return Err("expected `:` in the condition".to_owned());
        }
        let b = self.ternary()?;
        Ok(if c != 0 { a } else { b })
    }

    fn eat(&mut self, s: &str) -> bool {
        let hit = self.operator().is_some_and(|(o, _)| o == s);
        self.at += usize::from(hit);
        hit
    }

    fn binary(&mut self, min: u8) -> Result<i64, String> {
        let mut a = self.unary()?;
        while let Some((op, len)) = self.operator() {
            let Some(b) = binding(op).filter(|b| *b > min) else { break };
            self.at += len;
            let rhs = self.binary(b)?;
            a = apply(op, a, rhs)?;
        }
        Ok(a)
    }

    fn unary(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > 200 {
            return Err("the condition is nested too deeply".to_owned());
        }
        let t = self.tokens.get(self.at).ok_or("the condition is incomplete")?;
        self.at += 1;
        let v = match &t.tok {
            Tok::Sym("!") => i64::from(self.unary()? == 0),
            Tok::Sym("-") => self.unary()?.wrapping_neg(),
            Tok::Sym("+") => self.unary()?,
            Tok::Sym("~") => !self.unary()?,
            Tok::Sym("(") => {
                let v = self.ternary()?;
                if !self.eat(")") {
                    return Err("expected `)` in the condition".to_owned());
                }
                v
            }
            Tok::Int(text) => crate::constant::parse_literal(text)
                .and_then(|l| l.value.to_i64())
                .ok_or_else(|| format!("{text} is too large for a 64-bit integer"))?,
            Tok::Ident(_) => 0,
            Tok::Word(w) => i64::from(*w == "true"),
            _ => return Err("expected an integer, a name or an operator in the condition".to_owned()),
        };
        self.depth -= 1;
        Ok(v)
    }
}
