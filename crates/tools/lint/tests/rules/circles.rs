//! Circles of files that import each other.
//!
//! A module that both imports another and is imported by it, directly or through others, cannot be read by
//! itself. The graph has one node per source file of a crate and one edge per path that leads from one file
//! to an item of another. Re-exports are followed to the file that defines the item, so a crate root that
//! re-exports its modules makes no circle. Test modules are left out.
//!
//! A file and the files of its own folder (`queue.rs` and `queue/ring.rs`) are one idea in parts: what they
//! mention of each other makes no circle.

use crate::tree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::Visit;

type ModulePath = Vec<String>;

/// One source file: a module of the crate.
#[derive(Default)]
struct Module {
    /// Paths that the file mentions, absolute within the crate.
    mentions: BTreeSet<ModulePath>,
    /// Names that the file re-exports, with the paths that they stand for.
    reexports: BTreeMap<String, ModulePath>,
}

/// The circles of the crate in `folder`: the modules of each, sorted.
pub(crate) fn circles(folder: &Path) -> Vec<Vec<String>> {
    let modules = modules(&folder.join("src"));
    let edges = edges(&modules);
    let reach = |from: &ModulePath| {
        let mut seen = BTreeSet::new();
        let mut todo = vec![from.clone()];
        while let Some(at) = todo.pop() {
            for next in edges.get(&at).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    todo.push(next.clone());
                }
            }
        }
        seen
    };
    let reaches: BTreeMap<_, _> = modules.keys().map(|m| (m.clone(), reach(m))).collect();
    let mut found = BTreeSet::new();
    for (module, reached) in &reaches {
        let members: Vec<_> = reached.iter().filter(|other| reaches[*other].contains(module)).collect();
        if reached.contains(module) && members.len() > 1 {
            found.insert(members.iter().map(|m| name(m)).collect::<Vec<_>>());
        }
    }
    found.into_iter().collect()
}

/// Which file mentions which, as `from -> to`, among the members of `circle`.
pub(crate) fn links(folder: &Path, circle: &[String]) -> Vec<String> {
    let edges = edges(&modules(&folder.join("src")));
    let mut found = Vec::new();
    for (from, targets) in &edges {
        for to in targets {
            if circle.contains(&name(from)) && circle.contains(&name(to)) {
                found.push(format!("{} -> {}", name(from), name(to)));
            }
        }
    }
    found
}

fn name(module: &ModulePath) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

fn modules(source: &Path) -> BTreeMap<ModulePath, Module> {
    let mut modules = BTreeMap::new();
    for file in tree::files(source, ".rs") {
        let mut path: ModulePath = file
            .strip_prefix(source)
            .expect("the file is below the folder")
            .with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if path.iter().any(|part| part == "tests" || part == "bin") {
            continue;
        }
        if matches!(path.last().map(String::as_str), Some("lib" | "main" | "mod")) {
            path.pop();
        }
        let parsed =
            syn::parse_file(&tree::read(&file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut reader = Reader { at: path.clone(), module: Module::default() };
        reader.visit_file(&parsed);
        modules.insert(path, reader.module);
    }
    modules
}

fn edges(modules: &BTreeMap<ModulePath, Module>) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let mut edges = BTreeMap::new();
    for (from, module) in modules {
        let targets = module.mentions.iter().filter_map(|path| definer(modules, path, 8));
        let is_apart = |to: &ModulePath| !to.starts_with(from) && !from.starts_with(to);
        edges.insert(from.clone(), targets.filter(is_apart).collect());
    }
    edges
}

/// The file that defines the item at `path`, following at most `depth` re-exports.
fn definer(modules: &BTreeMap<ModulePath, Module>, path: &[String], depth: usize) -> Option<ModulePath> {
    let len = (0..=path.len()).rev().find(|len| modules.contains_key(&path[..*len]))?;
    let (module, rest) = path.split_at(len);
    let Some(item) = rest.first() else {
        // The import of a module: `use crate::module`.
        return Some(module.to_vec());
    };
    match modules[module].reexports.get(item) {
        Some(target) if depth > 0 => {
            let target: ModulePath = target.iter().chain(&rest[1..]).cloned().collect();
            definer(modules, &target, depth - 1)
        }
        _ => Some(module.to_vec()),
    }
}

/// Collects what one file mentions.
struct Reader {
    at: ModulePath,
    module: Module,
}

impl Reader {
    /// The absolute form of a path that begins with `crate`, `super` or `self`. None for any other path.
    fn absolute(&self, path: &[String]) -> Option<ModulePath> {
        let mut rest = path;
        let mut base = match rest.first().map(String::as_str) {
            Some("crate") => ModulePath::new(),
            Some("self" | "super") => self.at.clone(),
            _ => return None,
        };
        while let Some(first) = rest.first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = &rest[1..];
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn flatten(tree: &syn::UseTree, prefix: &mut Vec<String>, out: &mut Vec<(Vec<String>, String)>) {
        match tree {
            syn::UseTree::Path(p) => {
                prefix.push(p.ident.to_string());
                Self::flatten(&p.tree, prefix, out);
                prefix.pop();
            }
            syn::UseTree::Name(n) => {
                let ident = n.ident.to_string();
                let mut path = prefix.clone();
                if ident == "self" {
                    let last = path.last().cloned().unwrap_or_default();
                    out.push((path, last));
                } else {
                    path.push(ident.clone());
                    out.push((path, ident));
                }
            }
            syn::UseTree::Rename(r) => {
                let mut path = prefix.clone();
                if r.ident != "self" {
                    path.push(r.ident.to_string());
                }
                out.push((path, r.rename.to_string()));
            }
            syn::UseTree::Glob(_) => {
                let mut path = prefix.clone();
                path.push("*".to_owned());
                out.push((path, "*".to_owned()));
            }
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| Self::flatten(t, prefix, out)),
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let text = a.meta.path().get_ident().map(ToString::to_string);
        text.as_deref() == Some("cfg")
            && a.meta.require_list().is_ok_and(|l| l.tokens.to_string().split(' ').any(|t| t == "test"))
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let mut flat = Vec::new();
        Self::flatten(&item.tree, &mut Vec::new(), &mut flat);
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        for (path, name) in flat {
            // `use child::Item` begins with a module of this file, or with another crate, which leads to no
            // file.
            let relative = || self.at.iter().cloned().chain(path.iter().cloned()).collect();
            let absolute = self.absolute(&path).unwrap_or_else(relative);
            if public {
                self.module.reexports.insert(name, absolute);
            } else {
                self.module.reexports.insert(name, absolute.clone());
                self.module.mentions.insert(absolute);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let Some(absolute) = self.absolute(&segments) {
            self.module.mentions.insert(absolute);
        }
        syn::visit::visit_path(self, path);
    }
}
