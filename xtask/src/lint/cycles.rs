//! Finds cycles between sibling modules.
//!
//! The nodes are the child modules of one module. There is an edge from `a` to `b` if code anywhere inside `a` names
//! something anywhere inside `b`. The items of the parent's own file are shared by its children and make no edge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::Result;

use crate::lint::metadata::{Package, relative};
use crate::lint::module_tree::{ModuleId, Tree};
use crate::lint::resolve::modules_named;

/// Checks the modules of all packages and returns the problems, each with one line per edge.
pub(crate) fn check(packages: &[Package]) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in packages {
        for root in &package.roots {
            let tree = Tree::read(root)?;
            for graph in graphs(&tree).into_values() {
                problems
                    .extend(graph.cycles(&tree).iter().map(|cycle| graph.describe(package, &tree, cycle)));
            }
        }
    }
    Ok(problems)
}

/// The edges between the children of one module, each with the source lines that create it.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<(ModuleId, ModuleId), Vec<Evidence>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Evidence {
    file: String,
    line: usize,
    path: String,
}

/// The graphs of all modules whose children name each other, by parent.
fn graphs(tree: &Tree) -> BTreeMap<ModuleId, Graph> {
    let mut graphs: BTreeMap<ModuleId, Graph> = BTreeMap::new();
    for from in tree.ids() {
        let module = tree.get(from);
        for reference in &module.references {
            let edges: BTreeSet<Edge> = modules_named(tree, from, reference)
                .into_iter()
                .filter_map(|to| edge(tree, from, to))
                .collect();
            for Edge { parent, from, to } in edges {
                let evidence = Evidence {
                    file: relative(&module.file),
                    line: reference.line,
                    path: reference.path.join("::"),
                };
                graphs.entry(parent).or_default().edges.entry((from, to)).or_default().push(evidence);
            }
        }
    }
    for evidence in graphs.values_mut().flat_map(|graph| graph.edges.values_mut()) {
        evidence.sort();
        evidence.dedup_by(|a, b| (&a.file, a.line) == (&b.file, b.line));
    }
    graphs
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    parent: ModuleId,
    from: ModuleId,
    to: ModuleId,
}

/// The edge between the siblings that contain two modules; `None` if one module contains the other.
fn edge(tree: &Tree, from: ModuleId, to: ModuleId) -> Option<Edge> {
    let (from, to) = (tree.lineage(from), tree.lineage(to));
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    Some(Edge { parent: from[shared - 1], from: *from.get(shared)?, to: *to.get(shared)? })
}

impl Graph {
    /// For each edge that is part of a cycle the shortest one; each cycle once, the shortest first.
    fn cycles(&self, tree: &Tree) -> Vec<Vec<ModuleId>> {
        let mut cycles = BTreeMap::new();
        for (from, to) in self.edges.keys() {
            if let Some(mut cycle) = self.shortest_path(*to, *from) {
                let name = |module: &ModuleId| tree.get(*module).name.as_str();
                let first = (0..cycle.len()).min_by_key(|at| name(&cycle[*at])).unwrap_or(0);
                cycle.rotate_left(first);
                let names: Vec<String> = cycle.iter().map(|module| name(module).to_owned()).collect();
                cycles.insert((cycle.len(), names), cycle);
            }
        }
        cycles.into_values().collect()
    }

    fn shortest_path(&self, from: ModuleId, to: ModuleId) -> Option<Vec<ModuleId>> {
        let mut came_from = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(module) = queue.pop_front() {
            if module == to {
                let mut path = vec![to];
                while path[path.len() - 1] != from {
                    path.push(came_from[&path[path.len() - 1]]);
                }
                path.reverse();
                return Some(path);
            }
            for (_, next) in self.edges.keys().filter(|(from, _)| *from == module) {
                came_from.entry(*next).or_insert_with(|| {
                    queue.push_back(*next);
                    module
                });
            }
        }
        None
    }

    fn describe(&self, package: &Package, tree: &Tree, cycle: &[ModuleId]) -> String {
        let name = |module: ModuleId| tree.path(module).join("::");
        let circle: Vec<ModuleId> = cycle.iter().chain(cycle.first()).copied().collect();
        let names: Vec<String> = circle.iter().map(|module| name(*module)).collect();
        let mut text = format!("{}: {}", package.label(), names.join(" → "));
        for pair in circle.windows(2) {
            let evidence = &self.edges[&(pair[0], pair[1])];
            let Evidence { file, line, path } = &evidence[0];
            text += &format!("\n  {} → {}: {file}:{line} {path}", name(pair[0]), name(pair[1]));
            if evidence.len() > 1 {
                text += &format!(" (and {} more)", evidence.len() - 1);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;
