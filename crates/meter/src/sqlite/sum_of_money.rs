//! `sum_of_money`, a function of our own in SQL.

use ichido_usage::money::Sum;
use rusqlite::functions::{Aggregate, Context};

/// `sum_of_money(text)`: SQLite itself would sum in floats.
pub(super) struct SumOfMoney;

impl Aggregate<Sum, String> for SumOfMoney {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Sum> {
        Ok(Sum::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Sum) -> rusqlite::Result<()> {
        let wrong = |why: &str| rusqlite::Error::UserFunctionError(why.into());
        let text = context.get_raw(0).as_str().map_err(|_| wrong("an amount that is no text"))?;
        let amount = Sum::parse(text).map_err(|_| wrong("an amount that is no number"))?;
        sum.join(amount).map_err(|_| wrong("a sum that is too large"))
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Sum>) -> rusqlite::Result<String> {
        Ok(sum.unwrap_or_default().to_string())
    }
}
