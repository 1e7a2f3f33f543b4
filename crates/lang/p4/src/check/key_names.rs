//! Names of table keys in the control plane, from their source text.

use crate::ast::{self, ExprKind as Ast};

/// Whether the text of a key serves as its control-plane name: a path, a slice or mask of one, or a
/// validity.
pub(super) fn is_simple_key(e: &ast::Expr) -> bool {
    match &e.kind {
        Ast::Path { .. } => true,
        Ast::Member(b, _) => is_simple_key(b),
        Ast::Index(b, _) => is_simple_key(b),
        Ast::Slice(b, ..) | Ast::PlusSlice(b, ..) => is_simple_key(b),
        Ast::Binary(ast::BinaryOp::BitAnd, a, b) => is_simple_key(a) || is_simple_key(b),
        Ast::Call { callee, .. } => match &callee.kind {
            Ast::Member(b, n) => matches!(&*n.name, "isValid" | "lookahead") && is_simple_key(b),
            _ => false,
        },
        Ast::Int { .. } | Ast::Bool(_) => true,
        _ => false,
    }
}

/// Prints one side of a masked key: masks are in hexadecimal.
fn mask_text(e: &ast::Expr) -> String {
    if let Ast::Int { value, .. } = &e.kind { format!("{value:#x}") } else { path_text(e) }
}

/// Prints a key such as `hdr.ipv4.dst`, as its control-plane name.
pub(super) fn path_text(e: &ast::Expr) -> String {
    match &e.kind {
        Ast::Path { name, .. } => name.name.to_string(),
        Ast::Member(b, n) => format!("{}.{}", path_text(b), n.name),
        Ast::Int { value, .. } => value.to_string(),
        Ast::Index(b, i) => format!("{}[{}]", path_text(b), path_text(i)),
        Ast::Slice(b, high, low) => format!("{}[{}:{}]", path_text(b), path_text(high), path_text(low)),
        Ast::Binary(ast::BinaryOp::BitAnd, a, b) => format!("{} & {}", mask_text(a), mask_text(b)),
        Ast::Call { callee, .. } => match &callee.kind {
            Ast::Member(b, n) if &*n.name == "isValid" => format!("{}.$valid$", path_text(b)),
            _ => format!("{}()", path_text(callee)),
        },
        _ => "key".to_owned(),
    }
}
