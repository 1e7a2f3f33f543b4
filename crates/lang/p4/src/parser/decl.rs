//! Parsing of declarations.

use super::{Failed, Parsed, Parser};
use crate::ast::{
    Annotation, Composite, ControlDecl, Decl, DeclKind, Direction, Field, Ident, Method, ObjectKind, Param,
    ParserDecl, Prototype, State, Transition, TypeExpr, TypeKind, TypedefTarget,
};
use crate::lexer::Tok;
use crate::source::Span;

/// Type parameters and parameters.
type ParamLists = (Vec<Ident>, Vec<Param>);

impl Parser<'_> {
    /// Parses any declaration; the checker decides which kinds are allowed where.
    pub(super) fn declaration(&mut self) -> Parsed<Decl> {
        self.nested(Self::declaration_here)
    }

    fn declaration_here(&mut self) -> Parsed<Decl> {
        let annotations = self.annotations()?;
        let start = self.span();
        match self.tok() {
            Tok::Word("const") => self.constant(annotations),
            Tok::Word("extern") => self.extern_decl(annotations),
            Tok::Word("action") => self.action(annotations),
            Tok::Word("parser") => self.parser_decl(annotations),
            Tok::Word("control") => self.control_decl(annotations),
            Tok::Word("package") => {
                let (name, (type_params, params)) = self.signature(ObjectKind::Package)?;
                self.expect(";")?;
                let kind = DeclKind::ObjectType { kind: ObjectKind::Package, type_params, params };
                Ok(self.decl(start, annotations, name, kind))
            }
            Tok::Word("struct") => self.composite(annotations, Composite::Struct),
            Tok::Word("header") => self.composite(annotations, Composite::Header),
            Tok::Word("header_union") => self.composite(annotations, Composite::Union),
            Tok::Word("enum") => self.enum_decl(annotations),
            Tok::Word("typedef") => self.typedef(annotations, false),
            Tok::Word("type") if !matches!(self.peek_at(1), Tok::Sym("." | "=" | "(" | "[")) => {
                self.typedef(annotations, true)
            }
            Tok::Word("table") => self.table(annotations),
            Tok::Word("value_set") => self.value_set(annotations),
            Tok::Word(w @ ("error" | "match_kind")) if *self.peek_at(1) == Tok::Sym("{") => {
                let is_error = *w == "error";
                let name = Ident { name: (*w).into(), span: start };
                self.bump();
                self.bump();
                let members = self.comma_list("}", Self::name)?;
                let kind = if is_error { DeclKind::Errors(members) } else { DeclKind::MatchKinds(members) };
                Ok(self.decl(start, annotations, name, kind))
            }
            _ => self.typed_declaration(annotations),
        }
    }

    fn decl(&self, start: Span, annotations: Vec<Annotation>, name: Ident, kind: DeclKind) -> Decl {
        Decl { span: self.since(start), annotations, name, kind }
    }

    /// Parses a declaration that starts with a type: an instance, a function or a variable.
    fn typed_declaration(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.span();
        if self.at_instance() {
            let ty = self.type_expr()?;
            let args = self.arguments()?;
            let name = self.name()?;
            let array = if self.is("[") { Some(self.bracketed()?) } else { None };
            let init = if self.eat("=") { Some(self.object_initializer()?) } else { None };
            self.expect(";")?;
            self.declare_value(&name);
            return Ok(self.decl(start, annotations, name, DeclKind::Instance { ty, args, array, init }));
        }
        let is_function = self.looks_like(|p| {
            p.type_expr()?;
            p.name()?;
            if p.is("(") || p.is("<") { Ok(()) } else { Err(Failed) }
        });
        if is_function {
            return self.scoped(|p| {
                let (name, proto) = p.prototype()?;
                let body = p.block()?;
                Ok(p.decl(start, annotations, name, DeclKind::Function { proto, body }))
            });
        }
        if !self.at_typed_name() {
            let what = if self.types.len() > 1 { "a declaration or a statement" } else { "a declaration" };
            return Err(self.unexpected(what));
        }
        let mut d = self.variable(annotations)?;
        self.expect(";")?;
        d.span = self.since(start);
        Ok(d)
    }

    fn object_initializer(&mut self) -> Parsed<Vec<Decl>> {
        self.expect("{")?;
        self.until_brace(Self::declaration)
    }

    /// Parses `T name [= value]`, without the semicolon.
    pub(super) fn variable(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.span();
        let ty = self.type_expr()?;
        let (name, ty) = self.declarator(ty)?;
        let init = if self.eat("=") { Some(self.expr()?) } else { None };
        self.declare_value(&name);
        Ok(self.decl(start, annotations, name, DeclKind::Variable { ty, init }))
    }

    /// Parses `name`, or `name[size]` as C writes arrays.
    fn declarator(&mut self, ty: TypeExpr) -> Parsed<(Ident, TypeExpr)> {
        let name = self.name()?;
        let start = ty.span;
        Ok((name, self.stacks_of(ty, start)?))
    }

    fn constant(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.expect("const")?;
        let ty = self.type_expr()?;
        let (name, ty) = self.declarator(ty)?;
        self.expect("=")?;
        let value = self.expr()?;
        self.expect(";")?;
        self.declare_value(&name);
        Ok(self.decl(start, annotations, name, DeclKind::Const { ty, value }))
    }

    fn params(&mut self) -> Parsed<Vec<Param>> {
        self.expect("(")?;
        self.comma_list(")", |p| {
            let annotations = p.annotations()?;
            let direction = match p.tok() {
                Tok::Word("in") => Direction::In,
                Tok::Word("out") => Direction::Out,
                Tok::Word("inout") => Direction::InOut,
                _ => Direction::None,
            };
            if direction != Direction::None {
                p.bump();
            }
            let ty = p.type_expr()?;
            let (name, ty) = p.declarator(ty)?;
            let default = if p.eat("=") { Some(p.expr()?) } else { None };
            p.declare_value(&name);
            Ok(Param { name, annotations, direction, ty, default })
        })
    }

    fn prototype(&mut self) -> Parsed<(Ident, Prototype)> {
        // The result may be one of the function's own type parameters, which follow its name.
        let result = self.type_expr()?;
        let name = self.name()?;
        let type_params = self.type_params()?;
        let params = self.params()?;
        Ok((name, Prototype { result: Some(result), type_params, params }))
    }

    fn extern_decl(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.expect("extern")?;
        let object = self.name_here().is_some() && matches!(self.peek_at(1), Tok::Sym("{" | "<" | ";"));
        let object = object && !self.looks_like(|p| p.scoped(Self::prototype).map(|_| ()));
        if !object {
            let (name, proto) = self.scoped(Self::prototype)?;
            self.expect(";")?;
            self.declare_value(&name);
            return Ok(self.decl(start, annotations, name, DeclKind::ExternFunction(proto)));
        }
        let name = self.name()?;
        self.declare_type(&name);
        let (type_params, methods) = self.scoped(|p| {
            let type_params = p.type_params()?;
            let mut methods = Vec::new();
            if !p.eat(";") {
                p.expect("{")?;
                while !p.eat("}") {
                    p.check_length(methods.len())?;
                    methods.push(p.scoped(|p| p.method(&name))?);
                }
            }
            Ok((type_params, methods))
        })?;
        Ok(self.decl(start, annotations, name, DeclKind::Extern { type_params, methods }))
    }

    fn method(&mut self, object: &Ident) -> Parsed<Method> {
        let annotations = self.annotations()?;
        let optional = annotations.iter().any(|a| &*a.name.name == "optional");
        let is_abstract = self.eat("abstract");
        let constructor =
            self.name_here().is_some_and(|n| n == object.name) && *self.peek_at(1) == Tok::Sym("(");
        let (name, proto) = if constructor {
            let name = self.name()?;
            let params = self.params()?;
            (name, Prototype { result: None, type_params: Vec::new(), params })
        } else {
            self.prototype()?
        };
        self.expect(";")?;
        Ok(Method { name, proto, is_abstract, optional })
    }

    fn action(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.expect("action")?;
        let name = self.name()?;
        let (params, body) = self.scoped(|p| Ok((p.params()?, p.block()?)))?;
        Ok(self.decl(start, annotations, name, DeclKind::Action { params, body }))
    }

    /// Parses `keyword name<types>(params)` and declares the name as a type.
    fn signature(&mut self, kind: ObjectKind) -> Parsed<(Ident, ParamLists)> {
        self.expect(kind.keyword())?;
        let name = self.name()?;
        self.declare_type(&name);
        let rest = self.scoped(|p| Ok((p.type_params()?, p.params()?)))?;
        Ok((name, rest))
    }

    /// Declares type parameters and parameters again in the scope of a body; returns the parameters of
    /// the constructor.
    fn reopen(&mut self, type_params: &[Ident], params: &[Param]) -> Parsed<Vec<Param>> {
        type_params.iter().for_each(|t| self.declare_type(t));
        params.iter().for_each(|p| self.declare_value(&p.name));
        let ctor_params = if self.is("(") { self.params()? } else { Vec::new() };
        self.expect("{")?;
        Ok(ctor_params)
    }

    fn parser_decl(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.span();
        let (name, (type_params, params)) = self.signature(ObjectKind::Parser)?;
        let kind = if self.eat(";") {
            DeclKind::ObjectType { kind: ObjectKind::Parser, type_params, params }
        } else {
            self.scoped(|p| Ok(DeclKind::Parser(Box::new(p.parser_body(type_params, params)?))))?
        };
        Ok(self.decl(start, annotations, name, kind))
    }

    fn parser_body(&mut self, type_params: Vec<Ident>, params: Vec<Param>) -> Parsed<ParserDecl> {
        let ctor_params = self.reopen(&type_params, &params)?;
        let (mut locals, mut states) = (Vec::new(), Vec::new());
        while !self.eat("}") {
            if self.at_state() {
                states.push(self.state()?);
            } else {
                locals.push(self.declaration()?);
            }
        }
        Ok(ParserDecl { type_params, params, ctor_params, locals, states })
    }

    fn at_state(&mut self) -> bool {
        self.looks_like(|p| {
            p.annotations()?;
            p.expect("state").map(|_| ())
        })
    }

    fn state(&mut self) -> Parsed<State> {
        self.annotations()?;
        self.expect("state")?;
        let name = self.name()?;
        self.expect("{")?;
        let (body, transition) = self.scoped(|p| {
            let mut body = Vec::new();
            while !p.is("}") && !p.is("transition") {
                if p.at_end() {
                    return Err(p.unexpected("`transition`"));
                }
                p.statement_or_skip(&mut body)?;
            }
            let transition = if p.is("transition") { Some(p.transition()?) } else { None };
            Ok((body, transition))
        })?;
        self.expect("}")?;
        Ok(State { name, body, transition })
    }

    fn transition(&mut self) -> Parsed<Transition> {
        self.expect("transition")?;
        let start = self.span();
        if !self.eat("select") {
            let to = self.name()?;
            self.expect(";")?;
            return Ok(Transition::Direct(to));
        }
        self.expect("(")?;
        let subjects = self.comma_list(")", Self::expr)?;
        self.expect("{")?;
        let cases = self.until_brace(|p| {
            let keys = p.keyset()?;
            p.expect(":")?;
            let to = p.name()?;
            p.expect(";")?;
            Ok((keys, to))
        })?;
        Ok(Transition::Select { subjects, cases, span: self.since(start) })
    }

    fn control_decl(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.span();
        let (name, (type_params, params)) = self.signature(ObjectKind::Control)?;
        let kind = if self.eat(";") {
            DeclKind::ObjectType { kind: ObjectKind::Control, type_params, params }
        } else {
            self.scoped(|p| Ok(DeclKind::Control(Box::new(p.control_body(type_params, params)?))))?
        };
        Ok(self.decl(start, annotations, name, kind))
    }

    fn control_body(&mut self, type_params: Vec<Ident>, params: Vec<Param>) -> Parsed<ControlDecl> {
        let ctor_params = self.reopen(&type_params, &params)?;
        let mut locals = Vec::new();
        while !(self.is("apply") && matches!(self.peek_at(1), Tok::Sym("{" | "@"))) {
            if self.is("}") || self.at_end() {
                return Err(self.unexpected("`apply`"));
            }
            locals.push(self.declaration()?);
        }
        self.expect("apply")?;
        let body = self.block()?;
        self.expect("}")?;
        Ok(ControlDecl { type_params, params, ctor_params, locals, body })
    }

    fn composite(&mut self, annotations: Vec<Annotation>, kind: Composite) -> Parsed<Decl> {
        let start = self.span();
        self.bump();
        let name = self.name()?;
        self.declare_type(&name);
        let (type_params, fields) = self.scoped(|p| {
            let type_params = p.type_params()?;
            p.expect("{")?;
            let mut fields = Vec::new();
            while !p.eat("}") {
                p.check_length(fields.len())?;
                let annotations = p.annotations()?;
                let ty = p.type_expr()?;
                let (name, ty) = p.declarator(ty)?;
                p.expect(";")?;
                fields.push(Field { annotations, name, ty });
            }
            Ok((type_params, fields))
        })?;
        Ok(self.decl(start, annotations, name, DeclKind::Composite { kind, type_params, fields }))
    }

    fn enum_decl(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.expect("enum")?;
        let plain = self.name_here().is_some() && *self.peek_at(1) == Tok::Sym("{");
        let repr = if plain { None } else { Some(self.type_expr()?) };
        let name = self.name()?;
        self.declare_type(&name);
        self.expect("{")?;
        let members = self.comma_list("}", |p| {
            let m = p.name()?;
            let value = if p.eat("=") { Some(p.expr()?) } else { None };
            Ok((m, value))
        })?;
        Ok(self.decl(start, annotations, name, DeclKind::Enum { repr, members }))
    }

    fn typedef(&mut self, annotations: Vec<Annotation>, distinct: bool) -> Parsed<Decl> {
        let start = self.span();
        self.bump();
        let inner = self.annotations()?;
        let target = match self.tok() {
            Tok::Word("struct" | "header" | "header_union" | "enum") if !distinct => {
                TypedefTarget::Decl(Box::new(self.declaration()?))
            }
            _ => TypedefTarget::Type(self.type_expr()?),
        };
        let (name, target) = match target {
            TypedefTarget::Type(ty) => {
                let (name, ty) = self.declarator(ty)?;
                (name, TypedefTarget::Type(ty))
            }
            decl => (self.name()?, decl),
        };
        self.expect(";")?;
        self.declare_type(&name);
        let annotations = annotations.into_iter().chain(inner).collect();
        Ok(self.decl(start, annotations, name, DeclKind::Typedef { target, distinct }))
    }

    fn value_set(&mut self, annotations: Vec<Annotation>) -> Parsed<Decl> {
        let start = self.expect("value_set")?;
        let mut args = self.type_args()?;
        let ty = args.pop().filter(|_| args.is_empty());
        let ty = ty.unwrap_or(TypeExpr { kind: TypeKind::DontCare, span: start });
        self.expect("(")?;
        let size = self.expr()?;
        self.expect(")")?;
        let name = self.name()?;
        self.expect(";")?;
        Ok(self.decl(start, annotations, name, DeclKind::ValueSet { ty, size }))
    }
}
