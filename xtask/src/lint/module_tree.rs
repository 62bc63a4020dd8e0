//! Reads the modules of a crate from its source files, as rustc finds them. Modules that only tests have are omitted.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use syn::ext::IdentExt;
use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::lint::references::{Reference, references};
use crate::lint::scope::{Import, Scope};
use crate::lint::test_code::is_test_only;

/// The index of a module in its [`Tree`].
pub(crate) type ModuleId = usize;

/// The crate root, which is the first module of every tree.
pub(crate) const ROOT: ModuleId = 0;

/// The modules of one library or binary.
#[derive(Debug)]
pub(crate) struct Tree {
    modules: Vec<Module>,
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) children: Vec<ModuleId>,
    pub(crate) file: Rc<Path>,
    pub(crate) scope: Scope,
    pub(crate) references: Vec<Reference>,
    /// Whether its macros are in the textual scope of what follows it.
    pub(crate) has_macro_use: bool,
}

/// A source file, with what is needed to find the files of its child modules.
#[derive(Clone)]
struct Source {
    file: Rc<Path>,
    /// Where the child modules' files are.
    directory: PathBuf,
}

impl Tree {
    /// Reads the crate whose root is `file`.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let mut tree = Self { modules: Vec::new() };
        let directory = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let items = parse(file)?.items;
        tree.add("crate", None, Source { file: file.into(), directory }, &items)?;
        tree.export_macros();
        Ok(tree)
    }

    pub(crate) fn get(&self, module: ModuleId) -> &Module {
        &self.modules[module]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ModuleId> + use<> {
        ROOT..self.modules.len()
    }

    /// The module and its ancestors, from the root down.
    pub(crate) fn lineage(&self, module: ModuleId) -> Vec<ModuleId> {
        let mut lineage: Vec<ModuleId> =
            std::iter::successors(Some(module), |module| self.get(*module).parent).collect();
        lineage.reverse();
        lineage
    }

    /// The path of a module without the leading `crate`; empty for the root.
    pub(crate) fn path(&self, module: ModuleId) -> Vec<String> {
        self.lineage(module).into_iter().skip(1).map(|module| self.get(module).name.clone()).collect()
    }

    fn add(
        &mut self,
        name: &str,
        parent: Option<ModuleId>,
        source: Source,
        items: &[Item],
    ) -> Result<ModuleId> {
        let id = self.modules.len();
        self.modules.push(Module {
            name: name.into(),
            parent,
            children: Vec::new(),
            file: Rc::clone(&source.file),
            scope: Scope::of(items),
            references: references(items),
            has_macro_use: false,
        });
        for item in items {
            if let Item::Mod(item) = item
                && !is_test_only(&item.attrs)
                && let Some(child) = self.add_child(id, &source, item)?
            {
                self.modules[id].children.push(child);
            }
        }
        Ok(id)
    }

    /// Returns `None` if the module's file says that only tests have it.
    fn add_child(&mut self, parent: ModuleId, source: &Source, item: &ItemMod) -> Result<Option<ModuleId>> {
        let name = item.ident.unraw().to_string();
        let child = match &item.content {
            Some((_, items)) => {
                let source =
                    Source { file: Rc::clone(&source.file), directory: source.directory.join(&name) };
                self.add(&name, Some(parent), source, items)?
            }
            None => {
                let source = source.of_child(&name, item)?;
                let file = parse(&source.file)?;
                if is_test_only(&file.attrs) {
                    return Ok(None);
                }
                self.add(&name, Some(parent), source, &file.items)?
            }
        };
        self.modules[child].has_macro_use =
            item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_use"));
        Ok(Some(child))
    }

    /// `#[macro_export]` makes a macro an item of the root, wherever it is written.
    fn export_macros(&mut self) {
        for id in self.ids() {
            for name in self.get(id).scope.exported_macros.clone() {
                let mut path = vec!["crate".to_owned()];
                path.extend(self.path(id));
                path.push(name.clone());
                self.modules[ROOT].scope.imports.push(Import { name, path });
            }
        }
    }
}

impl Source {
    fn of_child(&self, name: &str, item: &ItemMod) -> Result<Self> {
        if let Some(path) = path_attribute(item) {
            let file = self.file.parent().unwrap_or(Path::new("")).join(path);
            let directory = file.parent().map(Path::to_path_buf).unwrap_or_default();
            return Ok(Self { file: file.into(), directory });
        }
        let directory = self.directory.join(name);
        for file in [self.directory.join(format!("{name}.rs")), directory.join("mod.rs")] {
            if file.is_file() {
                return Ok(Self { file: file.into(), directory });
            }
        }
        bail!("{}: cannot find the file of module {name}", self.file.display())
    }
}

fn path_attribute(item: &ItemMod) -> Option<String> {
    item.attrs.iter().find_map(|attribute| {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("path")
            && let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &pair.value
        {
            return Some(path.value());
        }
        None
    })
}

fn parse(file: &Path) -> Result<syn::File> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))
}
