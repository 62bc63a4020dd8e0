//! Distinguishes code that is compiled only for tests from production code.

use syn::punctuated::Punctuated;
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem};

/// Whether an item with these attributes exists only in a test build.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            return attribute
                .parse_args::<Meta>()
                .is_ok_and(|predicate| without_tests(&predicate) == Some(false));
        }
        path.segments.last().is_some_and(|last| last.ident == "test")
    })
}

/// The value of a `cfg` predicate when `test` is off. `None` if it depends on something else.
fn without_tests(predicate: &Meta) -> Option<bool> {
    if predicate.path().is_ident("test") {
        return Some(false);
    }
    let Meta::List(list) = predicate else { return None };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let parts: Vec<Option<bool>> = parts.iter().map(without_tests).collect();
    let (decisive, otherwise) = match list.path.get_ident()?.to_string().as_str() {
        "not" => return parts.first().copied().flatten().map(|part| !part),
        "all" => (false, true),
        "any" => (true, false),
        _ => return None,
    };
    if parts.contains(&Some(decisive)) {
        return Some(decisive);
    }
    (!parts.contains(&None)).then_some(otherwise)
}

pub(crate) fn attributes_of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Verbatim(_) => &[],
        _ => &[],
    }
}

pub(crate) fn attributes_of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        ImplItem::Verbatim(_) => &[],
        _ => &[],
    }
}

pub(crate) fn attributes_of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        TraitItem::Verbatim(_) => &[],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_test_only_with(attribute: &str) -> bool {
        let item: Item = syn::parse_str(&format!("{attribute} fn f() {{}}")).unwrap();
        is_test_only(attributes_of_item(&item))
    }

    #[test]
    fn code_that_needs_a_test_build_is_test_only() {
        for attribute in [
            "#[cfg(test)]",
            "#[cfg(all(test, unix))]",
            "#[cfg(any(test, all(test, unix)))]",
            "#[cfg(not(not(test)))]",
            "#[test]",
            "#[tokio::test]",
        ] {
            assert!(is_test_only_with(attribute), "{attribute}");
        }
    }

    #[test]
    fn code_of_other_builds_is_not_test_only() {
        for attribute in [
            "",
            "#[cfg(not(test))]",
            "#[cfg(any(test, feature = \"conformance\"))]",
            "#[cfg(feature = \"test\")]",
            "#[cfg(unix)]",
        ] {
            assert!(!is_test_only_with(attribute), "{attribute}");
        }
    }
}
