//! Finds the modules that a path leads to, through `use` declarations and re-exports.
//!
//! This is name resolution without types and without namespaces: a name that stands for several things leads to all of
//! them. Names that are not found belong to other crates.

use std::rc::Rc;

use crate::lint::module_tree::{ModuleId, ROOT, Tree};
use crate::lint::references::{Form, Reference};
use crate::lint::scope::Scope;

/// The modules that a reference in `from` leads through, each of which it needs.
pub(crate) fn modules_named(tree: &Tree, from: ModuleId, reference: &Reference) -> Vec<ModuleId> {
    let mut resolver = Resolver { tree, open: Vec::new() };
    let Reference { path, blocks, form, line: _ } = reference;
    let found = match form {
        Form::Path => resolver.path(from, blocks, path),
        Form::Name => resolver.name_from_globs(from, blocks, &path[0]),
        Form::MacroName => {
            let mut found = resolver.name_from_globs(from, blocks, &path[0]);
            found.extend(resolver.textual_macro(from, &path[0]));
            found
        }
    };
    found.into_iter().flat_map(|found| found.through).collect()
}

/// Something that a name stands for.
#[derive(Clone)]
struct Found {
    target: Target,
    /// The modules on the way: those that re-export it, and the one that has it.
    through: Vec<ModuleId>,
}

#[derive(Clone, Copy)]
enum Target {
    Module(ModuleId),
    /// Anything else: a path that goes on from here stays in the same module (`Type::method`).
    Item,
}

struct Resolver<'a> {
    tree: &'a Tree,
    /// The names being resolved, so that `use` declarations that refer to each other come to an end.
    open: Vec<(ModuleId, String)>,
}

impl Resolver<'_> {
    fn path(&mut self, from: ModuleId, blocks: &[Rc<Scope>], path: &[String]) -> Vec<Found> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut found = match first.as_str() {
            "crate" => vec![Found::module(ROOT)],
            "self" => vec![Found::module(from)],
            "super" => self.parent(from),
            name => self.name(from, blocks, name),
        };
        for segment in rest {
            // A type and a module may share a name with a function: only a module has names that are listed here.
            if found.iter().any(|found| matches!(found.target, Target::Module(_))) {
                found.retain(|found| matches!(found.target, Target::Module(_)));
            }
            found = found.into_iter().flat_map(|found| self.step(found, segment)).collect();
        }
        found
    }

    fn step(&mut self, found: Found, segment: &str) -> Vec<Found> {
        let Target::Module(module) = found.target else { return vec![found] };
        let next = match segment {
            "self" => return vec![found],
            "super" => self.parent(module),
            name => self.member(module, name),
        };
        if next.is_empty() {
            // A macro may have made the item.
            return vec![Found { target: Target::Item, ..found }];
        }
        next.into_iter().map(|next| next.after(&found.through)).collect()
    }

    fn parent(&self, module: ModuleId) -> Vec<Found> {
        self.tree.get(module).parent.map(Found::module).into_iter().collect()
    }

    /// What a name means where it is written: the innermost block wins, then the module.
    fn name(&mut self, from: ModuleId, blocks: &[Rc<Scope>], name: &str) -> Vec<Found> {
        for (depth, block) in blocks.iter().enumerate().rev() {
            if block.items.contains(name) {
                return vec![Found::item(from)];
            }
            let mut found = Vec::new();
            for import in block.imports_named(name) {
                found.extend(self.path(from, &blocks[..depth], &import.path));
            }
            if block.declares(name) {
                return found;
            }
            found.extend(self.globs(from, &blocks[..depth], &block.globs, name));
            if !found.is_empty() {
                return found;
            }
        }
        self.member(from, name)
    }

    /// What `module::name` means.
    fn member(&mut self, module: ModuleId, name: &str) -> Vec<Found> {
        let here = self.tree.get(module);
        let children = here.children.iter().filter(|child| self.tree.get(**child).name == name);
        let mut found: Vec<Found> = children.map(|child| Found::module(*child)).collect();
        if here.scope.items.contains(name) {
            found.push(Found::item(module));
        }
        let asked = (module, name.to_owned());
        if self.open.contains(&asked) {
            return found;
        }
        self.open.push(asked);
        for import in here.scope.imports_named(name) {
            let targets = self.path(module, &[], &import.path);
            if targets.is_empty() {
                found.push(Found::item(module));
            }
            found.extend(targets.into_iter().map(|target| target.after(&[module])));
        }
        if found.is_empty() {
            let targets = self.globs(module, &[], &here.scope.globs, name);
            found.extend(targets.into_iter().map(|target| target.after(&[module])));
        }
        self.open.pop();
        found
    }

    fn globs(
        &mut self,
        from: ModuleId,
        blocks: &[Rc<Scope>],
        globs: &[Vec<String>],
        name: &str,
    ) -> Vec<Found> {
        let mut found = Vec::new();
        for target in globs.iter().flat_map(|glob| self.path(from, blocks, glob)).collect::<Vec<_>>() {
            if let Target::Module(module) = target.target {
                let members = self.member(module, name);
                found.extend(members.into_iter().map(|member| member.after(&target.through)));
            }
        }
        found
    }

    /// A single name leads elsewhere only through a glob; a `use` declaration that names it is a reference itself.
    fn name_from_globs(&mut self, from: ModuleId, blocks: &[Rc<Scope>], name: &str) -> Vec<Found> {
        let here = self.tree.get(from);
        let is_declared = blocks.iter().any(|block| block.declares(name))
            || here.scope.declares(name)
            || here.children.iter().any(|child| self.tree.get(*child).name == name);
        if is_declared { Vec::new() } else { self.name(from, blocks, name) }
    }

    /// A macro of a sibling or of an ancestor's sibling that has `#[macro_use]`.
    fn textual_macro(&self, from: ModuleId, name: &str) -> Vec<Found> {
        let lineage = self.tree.lineage(from);
        let visible = lineage.iter().flat_map(|ancestor| &self.tree.get(*ancestor).children);
        visible
            .filter(|module| {
                let module = self.tree.get(**module);
                module.has_macro_use && module.scope.macros.contains(name)
            })
            .map(|module| Found::item(*module))
            .collect()
    }
}

impl Found {
    fn module(module: ModuleId) -> Self {
        Self { target: Target::Module(module), through: vec![module] }
    }

    fn item(module: ModuleId) -> Self {
        Self { target: Target::Item, through: vec![module] }
    }

    fn after(mut self, through: &[ModuleId]) -> Self {
        self.through.splice(0..0, through.iter().copied());
        self
    }
}
