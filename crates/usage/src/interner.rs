//! Stores each distinct string once and refers to it by a number.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The number of a string in an [`Interner`].
pub(crate) type Symbol = u32;

/// Strings in one piece of memory. The empty string is always 0.
#[derive(Debug)]
pub(crate) struct Interner {
    text: String,
    ends: Vec<usize>,
    table: HashTable<Symbol>,
    hasher: RandomState,
}

impl Default for Interner {
    fn default() -> Self {
        let mut interner = Self {
            text: String::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: RandomState::default(),
        };
        interner.intern("");
        interner
    }
}

impl Interner {
    /// Returns the number of a string, and stores the string if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> Symbol {
        let hash = self.hasher.hash_one(text);
        let same = |symbol: &Symbol| slice(&self.text, &self.ends, *symbol) == text;
        if let Some(symbol) = self.table.find(hash, same) {
            return *symbol;
        }
        let symbol = Symbol::try_from(self.ends.len()).unwrap_or(Symbol::MAX);
        self.text.push_str(text);
        self.ends.push(self.text.len());
        let (text, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        self.table.insert_unique(hash, symbol, |symbol| hasher.hash_one(slice(text, ends, *symbol)));
        symbol
    }

    /// Returns the string with this number.
    pub(crate) fn get(&self, symbol: Symbol) -> &str {
        slice(&self.text, &self.ends, symbol)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the rank of each string in sorted order, indexed by its number.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<Symbol> = (0..Symbol::try_from(self.len()).unwrap_or(Symbol::MAX)).collect();
        order.sort_unstable_by(|one, other| self.get(*one).cmp(self.get(*other)));
        let mut ranks = vec![0; order.len()];
        for (rank, symbol) in (0_u32..).zip(order) {
            if let Some(entry) = ranks.get_mut(symbol as usize) {
                *entry = rank;
            }
        }
        ranks
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], symbol: Symbol) -> &'a str {
    let index = symbol as usize;
    let start = match index {
        0 => 0,
        _ => ends.get(index - 1).copied().unwrap_or_default(),
    };
    let end = ends.get(index).copied().unwrap_or(start);
    text.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_has_one_symbol_and_symbol_has_its_string() {
        let mut interner = Interner::default();
        let texts: Vec<String> = (0..1000).map(|number| format!("t{}", number * 7 % 1000)).collect();
        let symbols: Vec<Symbol> = texts.iter().map(|text| interner.intern(text)).collect();
        assert_eq!((interner.intern(""), interner.len()), (0, 1001));
        for (text, symbol) in texts.iter().zip(symbols) {
            assert_eq!((interner.intern(text), interner.get(symbol)), (symbol, text.as_str()));
        }
        let ranks = interner.ranks();
        assert_eq!(ranks[0], 0);
        let (one, other) = (interner.intern("t10"), interner.intern("t9"));
        assert!(ranks[one as usize] < ranks[other as usize]);
    }
}
