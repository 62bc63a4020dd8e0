//! Texts that come again and again, kept once and named by a number.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Texts in one piece of memory. The empty text is always 0.
#[derive(Debug)]
pub(crate) struct Strings {
    text: String,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Self {
            text: String::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: RandomState::default(),
        };
        strings.number("");
        strings
    }
}

impl Strings {
    /// The number of a text.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        let hash = self.hasher.hash_one(text);
        let same = |number: &u32| slice(&self.text, &self.ends, *number) == text;
        if let Some(number) = self.table.find(hash, same) {
            return *number;
        }
        let number = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.text.push_str(text);
        self.ends.push(self.text.len());
        let (text, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        self.table.insert_unique(hash, number, |number| hasher.hash_one(slice(text, ends, *number)));
        number
    }

    /// The text of a number.
    pub(crate) fn get(&self, number: u32) -> &str {
        slice(&self.text, &self.ends, number)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The place of each text in the order of all.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.len()).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by(|one, other| self.get(*one).cmp(self.get(*other)));
        let mut ranks = vec![0; order.len()];
        for (rank, number) in (0_u32..).zip(order) {
            if let Some(place) = ranks.get_mut(number as usize) {
                *place = rank;
            }
        }
        ranks
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a str {
    let number = number as usize;
    let start = match number {
        0 => 0,
        _ => ends.get(number - 1).copied().unwrap_or_default(),
    };
    let end = ends.get(number).copied().unwrap_or(start);
    text.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_and_the_number_its_text() {
        let mut strings = Strings::default();
        let texts: Vec<String> = (0..1000).map(|number| format!("t{}", number * 7 % 1000)).collect();
        let numbers: Vec<u32> = texts.iter().map(|text| strings.number(text)).collect();
        assert_eq!((strings.number(""), strings.len()), (0, 1001));
        for (text, number) in texts.iter().zip(numbers) {
            assert_eq!((strings.number(text), strings.get(number)), (number, text.as_str()));
        }
        let ranks = strings.ranks();
        assert_eq!(ranks[0], 0);
        let (one, other) = (strings.number("t10"), strings.number("t9"));
        assert!(ranks[one as usize] < ranks[other as usize]);
    }
}
