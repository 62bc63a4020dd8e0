//! Collects the paths that a module's own code names: in `use` declarations, signatures, bodies, macros and attributes.

use std::rc::Rc;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Stmt};

use crate::lint::scope::{Scope, Segments, leaves};
use crate::lint::test_code::{
    attributes_of_impl_item, attributes_of_item, attributes_of_trait_item, is_test_only,
};

/// A path that code names.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) path: Segments,
    pub(crate) line: usize,
    pub(crate) form: Form,
    /// The enclosing blocks that declare names, outermost first.
    pub(crate) blocks: Vec<Rc<Scope>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Form {
    /// A `use` declaration, or a path of several segments.
    Path,
    /// A single name. Only a glob can bring it from elsewhere without a `use` declaration that names it.
    Name,
    /// The name of a macro that is called. It may also be in textual scope (`#[macro_use]`).
    MacroName,
}

/// Collects the references of items. Child modules are omitted, because they have references of their own.
pub(crate) fn references(items: &[Item]) -> Vec<Reference> {
    let mut collector = Collector::default();
    items.iter().for_each(|item| collector.visit_item(item));
    collector.references
}

#[derive(Default)]
struct Collector {
    references: Vec<Reference>,
    blocks: Vec<Rc<Scope>>,
}

/// Whether string literals may be paths, as in `#[serde(with = "path::to::module")]`.
#[derive(Clone, Copy, PartialEq)]
enum Strings {
    Text,
    Paths,
}

impl Collector {
    fn add(&mut self, path: Segments, line: usize, form: Form) {
        self.references.push(Reference { path, line, form, blocks: self.blocks.clone() });
    }

    /// The arguments of macros and attributes are not parsed, so their tokens are searched for paths.
    fn search(&mut self, tokens: &TokenStream, strings: Strings) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) => self.search(&group.stream(), strings),
                TokenTree::Ident(first) => {
                    let is_start = !continues_another(&tokens, at - 1);
                    let mut path = vec![first.unraw().to_string()];
                    while is_separator(&tokens, at)
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 2)
                    {
                        path.push(next.unraw().to_string());
                        at += 3;
                    }
                    let is_call = tokens.get(at).is_some_and(|token| is_one_of(token, &['!']))
                        && matches!(tokens.get(at + 1), Some(TokenTree::Group(_)));
                    let line = first.span().start().line;
                    if is_start && path.len() > 1 {
                        self.add(path, line, Form::Path);
                    } else if is_start && is_call {
                        self.add(path, line, Form::MacroName);
                    }
                }
                TokenTree::Literal(literal) if strings == Strings::Paths => {
                    if let Some(path) = path_in_string(&literal.to_string()) {
                        self.add(path, literal.span().start().line, Form::Path);
                    }
                }
                TokenTree::Literal(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(attributes_of_item(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in leaves(item) {
            self.add(leaf.path, leaf.line, Form::Path);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !is_test_only(attributes_of_impl_item(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if !is_test_only(attributes_of_trait_item(item)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_test_only(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_test_only(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_test_only(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !is_test_only(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_stmt_macro(&mut self, call: &'ast syn::StmtMacro) {
        if !is_test_only(&call.attrs) {
            visit::visit_stmt_macro(self, call);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let scope = Scope::of(block.stmts.iter().filter_map(|statement| match statement {
            Stmt::Item(item) => Some(item),
            Stmt::Local(_) | Stmt::Expr(..) | Stmt::Macro(_) => None,
        }));
        if scope.is_empty() {
            return visit::visit_block(self, block);
        }
        self.blocks.push(Rc::new(scope));
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let form = if path.segments.len() > 1 { Form::Path } else { Form::Name };
            let segments = path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
            self.add(segments, first.ident.span().start().line, form);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        match call.path.get_ident() {
            Some(name) => self.add(vec![name.unraw().to_string()], name.span().start().line, Form::MacroName),
            None => self.visit_path(&call.path),
        }
        self.search(&call.tokens, Strings::Text);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if attribute.path().segments.len() > 1 {
            self.visit_path(attribute.path());
        }
        match &attribute.meta {
            Meta::Path(_) => {}
            Meta::List(list) => self.search(&list.tokens, Strings::Paths),
            Meta::NameValue(pair) => self.visit_expr(&pair.value),
        }
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.search(tokens, Strings::Text);
    }
}

fn is_one_of(token: &TokenTree, characters: &[char]) -> bool {
    matches!(token, TokenTree::Punct(mark) if characters.contains(&mark.as_char()))
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    tokens.get(at..at + 2).is_some_and(|pair| pair.iter().all(|token| is_one_of(token, &[':'])))
}

/// What follows `::` belongs to another crate or to a type; what follows `.`, but not `..`, to a value.
fn continues_another(tokens: &[TokenTree], at: usize) -> bool {
    let is_dot = |back: usize| at.checked_sub(back).is_some_and(|before| is_one_of(&tokens[before], &['.']));
    at.checked_sub(2).is_some_and(|before| is_separator(tokens, before)) || (is_dot(1) && !is_dot(2))
}

fn path_in_string(literal: &str) -> Option<Segments> {
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    let path: Segments = text.split("::").map(String::from).collect();
    let is_name =
        |segment: &String| !segment.is_empty() && segment.chars().all(|c| c.is_alphanumeric() || c == '_');
    (path.len() > 1 && path.iter().all(is_name)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        let file = syn::parse_file(source).unwrap();
        references(&file.items)
            .into_iter()
            .filter(|reference| reference.form != Form::Name)
            .map(|reference| reference.path.join("::"))
            .collect()
    }

    #[test]
    fn paths_are_found_in_types_bodies_macros_and_attributes() {
        let source = r#"
            #[serde(with = "crate::hex::bytes", rename = "a b")]
            struct S { field: super::Field<self::Inner> }
            fn f() -> impl crate::Trait { info!(x = crate::fmt::show(y), "{}", z.len()); html! { (super::page(1)) } }
        "#;
        let expected = [
            "crate::hex::bytes",
            "super::Field",
            "self::Inner",
            "crate::Trait",
            "info",
            "crate::fmt::show",
            "html",
            "super::page",
        ];
        assert_eq!(paths(source), expected);
    }

    #[test]
    fn other_crates_documentation_and_tests_are_omitted() {
        let source = r#"
            /// See [`crate::other`].
            fn f() { m!(::std::mem::take(a.b::<u8>()), <T>::x); }
            #[cfg(test)]
            fn g() { crate::testing::check() }
            impl S { #[cfg(test)] fn h() { crate::testing::check() } }
        "#;
        assert_eq!(paths(source), ["m"]);
    }
}
