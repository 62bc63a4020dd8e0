//! The names that a module or a block brings into scope: its items and its `use` declarations.

use std::collections::BTreeSet;

use syn::ext::IdentExt;
use syn::{Item, ItemUse, UseTree};

use crate::lint::test_code::{attributes_of_item, is_test_only};

/// A path as written, segment by segment, without generic arguments.
pub(crate) type Segments = Vec<String>;

/// What is in scope by declaration. Child modules are not here: the module tree has them.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) items: BTreeSet<String>,
    /// The items that `macro_rules!` defines.
    pub(crate) macros: BTreeSet<String>,
    /// The macros with `#[macro_export]`, which makes them items of the crate root.
    pub(crate) exported_macros: Vec<String>,
    pub(crate) imports: Vec<Import>,
    /// The targets of `use …::*`.
    pub(crate) globs: Vec<Segments>,
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) path: Segments,
}

/// One leaf of a `use` tree.
pub(crate) struct Leaf {
    /// What it is called in this scope; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) path: Segments,
    pub(crate) line: usize,
}

impl Scope {
    /// Collects the names of items, except those that only tests have.
    pub(crate) fn of<'a>(items: impl IntoIterator<Item = &'a Item>) -> Self {
        let mut scope = Self::default();
        for item in items {
            if !is_test_only(attributes_of_item(item)) {
                scope.add(item);
            }
        }
        scope
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.imports.is_empty() && self.globs.is_empty()
    }

    /// Whether the name is declared here, rather than brought by a glob.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.items.contains(name) || self.imports_named(name).next().is_some()
    }

    pub(crate) fn imports_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Import> {
        self.imports.iter().filter(move |import| import.name == name)
    }

    fn add(&mut self, item: &Item) {
        let ident = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::TraitAlias(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => {
                let Some(ident) = &item.ident else { return };
                self.macros.insert(ident.unraw().to_string());
                if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                    self.exported_macros.push(ident.unraw().to_string());
                }
                ident
            }
            Item::ExternCrate(item) => {
                if let ("self", Some((_, name))) = (item.ident.to_string().as_str(), &item.rename) {
                    self.imports.push(Import { name: name.unraw().to_string(), path: vec!["crate".into()] });
                }
                return;
            }
            Item::Use(item) => return self.add_use(item),
            Item::ForeignMod(_) | Item::Impl(_) | Item::Mod(_) | Item::Verbatim(_) => return,
            _ => return,
        };
        self.items.insert(ident.unraw().to_string());
    }

    fn add_use(&mut self, item: &ItemUse) {
        for Leaf { name, path, line: _ } in leaves(item) {
            match name {
                Some(name) => self.imports.push(Import { name, path }),
                None => self.globs.push(path),
            }
        }
    }
}

/// Flattens a `use` declaration. `use ::other::…` names another crate and has no leaves here.
pub(crate) fn leaves(item: &ItemUse) -> Vec<Leaf> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn flatten(tree: &UseTree, prefix: &mut Segments, found: &mut Vec<Leaf>) {
    match tree {
        UseTree::Path(tree) => {
            prefix.push(tree.ident.unraw().to_string());
            flatten(&tree.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(tree) => {
            let path = join(prefix, tree.ident.unraw().to_string());
            found.push(Leaf { name: path.last().cloned(), path, line: tree.ident.span().start().line });
        }
        UseTree::Rename(tree) => {
            let path = join(prefix, tree.ident.unraw().to_string());
            let name = tree.rename.unraw().to_string();
            found.push(Leaf { name: Some(name), path, line: tree.ident.span().start().line });
        }
        UseTree::Glob(tree) => {
            let line = tree.star_token.spans[0].start().line;
            found.push(Leaf { name: None, path: prefix.clone(), line });
        }
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| flatten(tree, prefix, found)),
    }
}

/// `use a::b::{self}` names `a::b`.
fn join(prefix: &[String], last: String) -> Segments {
    let mut path = prefix.to_vec();
    if last != "self" || path.is_empty() {
        path.push(last);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_tree_is_flattened_with_the_names_it_gives() {
        let item: ItemUse = syn::parse_str("use crate::a::{self, b::{C, D as E}, f::*};").unwrap();
        let leaves: Vec<(Option<String>, String)> =
            leaves(&item).into_iter().map(|leaf| (leaf.name, leaf.path.join("::"))).collect();
        let expected = [
            (Some("a"), "crate::a"),
            (Some("C"), "crate::a::b::C"),
            (Some("E"), "crate::a::b::D"),
            (None, "crate::a::f"),
        ];
        assert_eq!(leaves, expected.map(|(name, path)| (name.map(String::from), String::from(path))));
    }
}
