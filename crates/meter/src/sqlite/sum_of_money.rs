//! The SQL function `sum_of_money`.

use ichido_usage::money::Sum;
use rusqlite::functions::{Aggregate, Context};

/// `sum_of_money(text)`, because SQLite itself would add floats.
pub(super) struct SumOfMoney;

impl Aggregate<Sum, String> for SumOfMoney {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Sum> {
        Ok(Sum::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Sum) -> rusqlite::Result<()> {
        let wrong = |why: &str| rusqlite::Error::UserFunctionError(why.into());
        let text = context.get_raw(0).as_str().map_err(|_| wrong("an amount is not text"))?;
        let amount = Sum::parse(text).map_err(|_| wrong("an amount is not a number"))?;
        sum.join(amount).map_err(|_| wrong("the sum is too large"))
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Sum>) -> rusqlite::Result<String> {
        Ok(sum.unwrap_or_default().to_string())
    }
}
