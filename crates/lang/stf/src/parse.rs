//! Parsing of scripts. Any text results in a script, or in an error with its line.

use num_bigint::BigUint;

use crate::pattern::Pattern;
use crate::script::{
    ActionCall, Command, Compare, CounterIndex, KeyMatch, MAX_NUMBER_BITS, MAX_PACKET_BYTES,
    MAX_SCRIPT_BYTES, MatchValue, Number, Replication, ScriptError, Statement, Unit,
};

/// Parses a script.
///
/// # Errors
/// Returns the first line with an error.
pub fn parse(text: &str) -> Result<Vec<Statement>, ScriptError> {
    if text.len() > MAX_SCRIPT_BYTES {
        let message = format!("the script has {} bytes, the limit is {MAX_SCRIPT_BYTES}", text.len());
        return Err(ScriptError { line: 1, message });
    }
    let mut statements = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line_number = i + 1;
        let command = line_command(without_comment(line))
            .map_err(|message| ScriptError { line: line_number, message })?;
        statements.extend(command.map(|command| Statement { line: line_number, command }));
    }
    Ok(statements)
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (i, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..i],
            _ => {}
        }
    }
    line
}

fn line_command(line: &str) -> Result<Option<Command>, String> {
    let line = line.trim();
    let Some(word) = line.split_whitespace().next() else { return Ok(None) };
    let rest = line[word.len()..].trim();
    let word = word.to_ascii_lowercase();
    Ok(Some(match word.as_str() {
        "packet" => {
            let (port, data) = port(rest)?;
            Command::Packet { port, bytes: packet(data)? }
        }
        "expect" => {
            let (port, data) = port(rest)?;
            Command::Expect { port, pattern: expected(data)? }
        }
        "no_packet" => Command::NoPacket,
        "wait" => Command::Wait,
        _ => word_command(&word, rest)?,
    }))
}

fn port(text: &str) -> Result<(u32, &str), String> {
    let word = text.split_whitespace().next().ok_or("a port number is missing")?;
    let port = word.parse().map_err(|_| format!("`{word}` is not a port number"))?;
    Ok((port, text[word.len()..].trim()))
}

fn packet(text: &str) -> Result<Vec<u8>, String> {
    let pattern = expected(text)?.unwrap_or_default();
    if text.contains('*') || text.contains('$') {
        return Err("`*` and `$` are only valid in expected packets".to_owned());
    }
    Ok(pattern.bytes())
}

fn expected(text: &str) -> Result<Option<Pattern>, String> {
    if text.len() / 2 > MAX_PACKET_BYTES * 2 {
        return Err(format!("the packet exceeds the limit of {MAX_PACKET_BYTES} bytes"));
    }
    if text.is_empty() {
        return Ok(None);
    }
    let pattern = Pattern::parse(text)
        .map_err(|c| format!("`{c}` is not a hexadecimal digit, `*`, or a `$` at the end"))?;
    if pattern.len() > MAX_PACKET_BYTES {
        return Err(format!("the packet exceeds the limit of {MAX_PACKET_BYTES} bytes"));
    }
    Ok(Some(pattern))
}

fn word_command(word: &str, rest: &str) -> Result<Command, String> {
    let mut t = Tokens::new(rest)?;
    let command = match word {
        "add" => add(&mut t)?,
        "setdefault" => Command::SetDefault { table: t.word("a table")?, action: action(&mut t)? },
        "group" => {
            let (table, number) = (t.word("a table")?, t.number("the number of a group")?);
            let mut members = Vec::new();
            while !t.is_empty() {
                members.push(action(&mut t)?);
            }
            Command::Group { table, number, members }
        }
        "pvs_add" => {
            let set = t.word("a value set")?;
            let mut values = vec![matched(&mut t)?];
            while !t.is_empty() {
                values.push(matched(&mut t)?);
            }
            Command::AddValue { set, values }
        }
        "pvs_clear" => Command::ClearValues(t.word("a value set")?),
        "remove" => {
            let what = t.word("`all` or the name of an entry")?;
            Command::Remove((!what.eq_ignore_ascii_case("all")).then_some(what))
        }
        "check_counter" => check_counter(&mut t)?,
        "register_read" => {
            Command::RegisterRead { name: t.word("a register")?, index: t.number("an index")? }
        }
        "register_write" => Command::RegisterWrite {
            name: t.word("a register")?,
            index: t.number("an index")?,
            value: t.value()?,
        },
        "register_reset" => Command::RegisterReset(t.word("a register")?),
        "counter_read" => Command::CounterRead { name: t.word("a counter")?, index: t.number("an index")? },
        "counter_write" => Command::CounterWrite {
            name: t.word("a counter")?,
            index: t.number("an index")?,
            values: [t.long()?, t.long()?],
        },
        "meter_set_rates" => Command::MeterRates {
            name: t.word("a meter")?,
            index: Some(index(t.word("an index or the name of an entry")?)),
            rates: rates(&mut t)?,
        },
        "meter_array_set_rates" => {
            Command::MeterRates { name: t.word("a meter")?, index: None, rates: rates(&mut t)? }
        }
        "mirroring_add" | "mirroring_add_mc" | "mirroring_delete" | "mirroring_get" | "mc_mgrp_create"
        | "mc_node_create" | "mc_node_associate" => {
            let mut numbers = Vec::new();
            while !t.is_empty() {
                numbers.push(t.long()?);
            }
            Command::Replication(Replication { command: word.to_owned(), numbers })
        }
        other => return Err(format!("unknown command `{other}`")),
    };
    match t.next() {
        None => Ok(command),
        Some(token) => Err(format!("unexpected `{}` at the end", token.text())),
    }
}

fn add(t: &mut Tokens) -> Result<Command, String> {
    let table = t.word("a table")?;
    let mut priority = None;
    // A number without a colon after it is a priority.
    if let Some(Token::Word(w)) = t.peek()
        && w.starts_with(|c: char| c.is_ascii_digit())
    {
        priority = Some(t.number("a priority")?);
    }
    let mut matches = Vec::new();
    while t.second_is(':') {
        matches.push(key_match(t)?);
    }
    let action = action(t)?;
    let id = if t.eat('=') { Some(t.word("a name for the entry")?) } else { None };
    Ok(Command::Add { table, priority, matches, action, id })
}

fn key_match(t: &mut Tokens) -> Result<KeyMatch, String> {
    let key = t.word("a key")?;
    t.require(':')?;
    Ok(KeyMatch { key, matched: matched(t)? })
}

fn matched(t: &mut Tokens) -> Result<MatchValue, String> {
    let text = t.word("a value")?;
    let (low, high) = match text.split_once("..").or_else(|| text.split_once("->")) {
        Some((low, high)) => (low.to_owned(), Some(number(high)?.value)),
        None => (text, None),
    };
    let value = number(&low)?;
    let prefix = if t.eat('/') { Some(t.number("the length of a prefix")?) } else { None };
    Ok(MatchValue { value, prefix, to: high })
}

fn action(t: &mut Tokens) -> Result<ActionCall, String> {
    let name = t.word("an action")?;
    let mut args = Vec::new();
    if t.eat('(') {
        while !t.eat(')') {
            if !args.is_empty() {
                t.require(',')?;
            }
            let name = t.word("a parameter")?;
            t.require(':')?;
            args.push((name, t.value()?));
        }
    }
    Ok(ActionCall { name, args })
}

fn check_counter(t: &mut Tokens) -> Result<Command, String> {
    let name = t.word("a counter or a table")?;
    let brackets = t.eat('(');
    let index = index(t.word("an index or the name of an entry")?);
    if brackets {
        t.require(')')?;
    }
    let test = if t.is_empty() {
        None
    } else {
        let unit = match t.word("packets or bytes")?.as_str() {
            "packets" => Unit::Packets,
            "bytes" => Unit::Bytes,
            other => return Err(format!("expected packets or bytes, got `{other}`")),
        };
        Some((unit, t.compare()?, t.long()?))
    };
    Ok(Command::CheckCounter { name, index, test })
}

/// Parses a number or the name of an entry.
fn index(word: String) -> CounterIndex {
    word.parse().map_or_else(|_| CounterIndex::Entry(word), CounterIndex::Number)
}

fn rates(t: &mut Tokens) -> Result<Vec<(f64, u64)>, String> {
    let mut rates = Vec::new();
    while !t.is_empty() {
        let rate = t.word("a rate")?;
        let rate = rate.parse::<f64>().ok().filter(|r| r.is_finite() && *r >= 0.0);
        t.require(':')?;
        rates.push((rate.ok_or("a rate is a number of units in a microsecond")?, t.long()?));
    }
    if rates.is_empty() || rates.len() > 2 {
        return Err("expected one or two rates, each `rate:burst`".to_owned());
    }
    Ok(rates)
}

/// Parses a decimal, `0x` or `0b` number. The latter two allow `*` for an open digit.
///
/// # Errors
/// Returns what is wrong with the text.
pub(crate) fn number(text: &str) -> Result<Number, String> {
    let wrong = || format!("`{text}` is not a number");
    let (digits, bits) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 4),
        Some("0b" | "0B") => (&text[2..], 1),
        _ => (text, 0),
    };
    if digits.is_empty() || digits.len() > MAX_NUMBER_BITS {
        return Err(wrong());
    }
    if bits == 0 {
        let value: BigUint = digits.parse().map_err(|_| wrong())?;
        return if value.bits() > MAX_NUMBER_BITS as u64 {
            Err(wrong())
        } else {
            Ok(Number { value, mask: None })
        };
    }
    if digits.len() * bits > MAX_NUMBER_BITS {
        return Err(format!("`{text}` exceeds the limit of {MAX_NUMBER_BITS} bits"));
    }
    let (mut value, mut mask) = (BigUint::default(), BigUint::default());
    for c in digits.chars() {
        let given = c != '*';
        let digit = if given { c.to_digit(1 << bits).ok_or_else(wrong)? } else { 0 };
        value = (value << bits) + digit;
        mask = (mask << bits) + if given { (1u32 << bits) - 1 } else { 0 };
    }
    Ok(Number { value, mask: digits.contains('*').then_some(mask) })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Word(w) => w.clone(),
            Self::Mark(c) => c.to_string(),
        }
    }
}

struct Tokens {
    tokens: Vec<Token>,
    at: usize,
}

impl Tokens {
    fn new(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                c if c.is_whitespace() => {}
                ':' | '/' | '(' | ')' | ',' | '=' | '!' | '<' | '>' => tokens.push(Token::Mark(c)),
                '"' => {
                    let quoted: String = chars.by_ref().take_while(|c| *c != '"').collect();
                    tokens.push(Token::Word(quoted));
                }
                c if is_word(c) => {
                    let mut word = String::from(c);
                    while let Some(c) = chars.next_if(|c| is_word(*c) || *c == '"') {
                        // Quotes within a dotted name group one component.
                        word.extend((c != '"').then_some(c));
                    }
                    // The arrow of a range.
                    if word.ends_with('-') && chars.next_if_eq(&'>').is_some() {
                        word.push('>');
                        while let Some(c) = chars.next_if(|c| is_word(*c)) {
                            word.push(c);
                        }
                    }
                    tokens.push(Token::Word(word));
                }
                other => return Err(format!("unexpected character `{other}`")),
            }
        }
        Ok(Self { tokens, at: 0 })
    }

    fn is_empty(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn second_is(&self, mark: char) -> bool {
        self.tokens.get(self.at + 1) == Some(&Token::Mark(mark))
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += usize::from(token.is_some());
        token
    }

    fn eat(&mut self, mark: char) -> bool {
        let there = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(there);
        there
    }

    fn require(&mut self, mark: char) -> Result<(), String> {
        if self.eat(mark) { Ok(()) } else { Err(format!("`{mark}` is missing")) }
    }

    fn word(&mut self, what: &str) -> Result<String, String> {
        match self.next() {
            Some(Token::Word(w)) => Ok(w),
            Some(other) => Err(format!("expected {what}, got `{}`", other.text())),
            None => Err(format!("{what} is missing")),
        }
    }

    fn value(&mut self) -> Result<BigUint, String> {
        let n = number(&self.word("a number")?)?;
        if n.mask.is_some() { Err("`*` is invalid in this number".to_owned()) } else { Ok(n.value) }
    }

    fn long(&mut self) -> Result<u64, String> {
        let n = self.value()?;
        u64::try_from(&n).map_err(|_| format!("{n} is too large"))
    }

    fn number(&mut self, what: &str) -> Result<u32, String> {
        if self.is_empty() {
            return Err(format!("{what} is missing"));
        }
        let n = self.long()?;
        u32::try_from(n).map_err(|_| format!("{n} is too large for {what}"))
    }

    fn compare(&mut self) -> Result<Compare, String> {
        let first = self.next().map(|t| t.text()).unwrap_or_default();
        let equal = self.eat('=');
        match (first.as_str(), equal) {
            ("=", true) => Ok(Compare::Eq),
            ("!", true) => Ok(Compare::Ne),
            ("<", true) => Ok(Compare::Le),
            ("<", false) => Ok(Compare::Lt),
            (">", true) => Ok(Compare::Ge),
            (">", false) => Ok(Compare::Gt),
            _ => Err("expected one of == != <= < >= >".to_owned()),
        }
    }
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.' | '[' | ']' | '*' | '-' | '@')
}
