//! `sum_of_money`, a function of our own in SQL.

use rusqlite::functions::{Aggregate, Context};

use crate::exact::Exact;

/// `sum_of_money(text)`: SQLite itself would sum in floats.
pub(super) struct SumOfMoney;

impl Aggregate<Exact, String> for SumOfMoney {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Exact> {
        Ok(Exact::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Exact) -> rusqlite::Result<()> {
        let wrong = |why: &str| rusqlite::Error::UserFunctionError(why.into());
        let text = context.get_raw(0).as_str().map_err(|_| wrong("an amount that is no text"))?;
        let amount = Exact::parse(text).ok_or_else(|| wrong("an amount that is no number"))?;
        *sum = sum.add(amount).ok_or_else(|| wrong("a sum that is too large"))?;
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Exact>) -> rusqlite::Result<String> {
        Ok(sum.unwrap_or_default().to_string())
    }
}
