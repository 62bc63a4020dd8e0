//! The usage of one node of a workflow run: where it is written, and in which order that is looked at.
//!
//! `process_data.{model_provider, model_name, usage}`, else `outputs.usage`, else
//! `execution_metadata.{total_tokens, total_price, currency}`. A text that Dify has cut is no JSON any more and counts as
//! not there; the next one is looked at.

use std::borrow::Cow;

use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{App, Error, UsageEvent, User, count, price, total};
use crate::money;

/// Old rows hold prices as floats. What is beyond this many places is noise: Dify computes with seven.
const FLOAT_PLACES: u32 = 12;

/// Kinds of nodes that call no model themselves. What an iteration, a loop or a tool tells is the sum of what stands in rows
/// of its own, and what code puts out under the name of usage is anything.
pub(super) const WITHOUT_MODEL: [&str; 18] = [
    "start",
    "end",
    "answer",
    "code",
    "http-request",
    "if-else",
    "iteration",
    "iteration-start",
    "loop",
    "loop-start",
    "loop-end",
    "template-transform",
    "variable-aggregator",
    "variable-assigner",
    "assigner",
    "list-operator",
    "document-extractor",
    "tool",
];

/// The three texts of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Texts<'a> {
    pub(super) process_data: Option<&'a str>,
    pub(super) outputs: Option<&'a str>,
    pub(super) execution_metadata: Option<&'a str>,
}

/// What a node used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Used<'a> {
    pub(super) provider: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) total_tokens: u64,
    pub(super) price: Decimal,
    pub(super) currency: String,
    /// There was only a sum of tokens.
    pub(super) undivided: bool,
}

impl<'a> Used<'a> {
    /// The event of this.
    pub(super) fn into_event(
        self,
        id: &'a str,
        time: Timestamp,
        tenant: &'a str,
        app: App<'a>,
        user: User<'a>,
        debugger: bool,
    ) -> UsageEvent<'a> {
        UsageEvent {
            id: id.into(),
            time,
            tenant: tenant.into(),
            provider: self.provider,
            model: self.model,
            app,
            user,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            total_tokens: self.total_tokens,
            price: self.price,
            currency: self.currency.into(),
            requests: 1,
            debugger,
        }
    }
}

/// What the texts of a node say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// It used a model.
    Used(Used<'a>),
    /// It used none.
    Nothing,
    /// Nothing can be read of it, because it was cut.
    Cut,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    model_provider: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    model_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Tail<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

/// A `usage`, and also the part of `execution_metadata` that is like it.
#[derive(Default, Deserialize)]
struct Usage<'a> {
    #[serde(default)]
    prompt_tokens: Option<i64>,
    #[serde(default)]
    completion_tokens: Option<i64>,
    #[serde(default)]
    total_tokens: Option<i64>,
    #[serde(borrow, default)]
    prompt_price: Option<&'a RawValue>,
    #[serde(borrow, default)]
    completion_price: Option<&'a RawValue>,
    #[serde(borrow, default)]
    total_price: Option<&'a RawValue>,
    #[serde(borrow, default)]
    currency: Option<Cow<'a, str>>,
}

/// Reads the usage of a node.
pub(super) fn used(texts: Texts<'_>) -> Result<Said<'_>, Error> {
    let mut cut = false;
    let head: Option<Head<'_>> = parse(texts.process_data, &mut cut);
    let tail: Option<Tail<'_>> = parse(texts.outputs, &mut cut);
    let (provider, model, first) = match head {
        Some(head) => (head.model_provider, head.model_name, head.usage),
        None => (None, None, None),
    };
    let written = [first, tail.and_then(|tail| tail.usage)].into_iter().flatten();
    let usage = match written.map(RawValue::get).find(|text| text.starts_with('{')) {
        Some(text) => Some(
            serde_json::from_str::<Usage<'_>>(text)
                .map_err(|_| Error::other("usage", "is not what it should be"))?,
        ),
        None => parse::<Usage<'_>>(texts.execution_metadata, &mut cut)
            .filter(|usage| usage.total_tokens.is_some_and(|tokens| tokens != 0)),
    };
    let Some(usage) = usage else { return Ok(if cut { Said::Cut } else { Said::Nothing }) };
    let price = usage.price()?;
    let (input_tokens, output_tokens, total_tokens, undivided) = usage.tokens()?;
    Ok(Said::Used(Used {
        provider: provider.unwrap_or_default(),
        model: model.unwrap_or_default(),
        input_tokens,
        output_tokens,
        total_tokens,
        price,
        currency: usage.currency.unwrap_or_default().into_owned(),
        undivided,
    }))
}

impl Usage<'_> {
    fn tokens(&self) -> Result<(u64, u64, u64, bool), Error> {
        if self.prompt_tokens.is_none() && self.completion_tokens.is_none() {
            let sum = count("total_tokens", self.total_tokens.unwrap_or_default())?;
            return Ok((sum, 0, sum, true));
        }
        let input = count("prompt_tokens", self.prompt_tokens.unwrap_or_default())?;
        let output = count("completion_tokens", self.completion_tokens.unwrap_or_default())?;
        let sum = match self.total_tokens {
            Some(sum) => count("total_tokens", sum)?,
            None => total(input, output)?,
        };
        Ok((input, output, sum, false))
    }

    fn price(&self) -> Result<Decimal, Error> {
        match amount("total_price", self.total_price)? {
            Some(price) => Ok(price),
            None => {
                let parts = amount("prompt_price", self.prompt_price)?.unwrap_or_default();
                Ok(parts + amount("completion_price", self.completion_price)?.unwrap_or_default())
            }
        }
    }
}

/// A price: a decimal in a string, in old rows a number.
pub(super) fn amount(field: &'static str, raw: Option<&RawValue>) -> Result<Option<Decimal>, Error> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    if raw.get().starts_with('"') {
        let number =
            money::from_json(raw).and_then(money::price).map_err(|error| Error::new(field, error))?;
        return Ok(Some(number));
    }
    let rounded = match raw.get().contains(['e', 'E']) {
        true => Decimal::from_scientific(raw.get()),
        false => raw.get().parse(),
    };
    match rounded {
        Ok(number) => price(field, &number.round_dp(FLOAT_PLACES).to_string()).map(Some),
        Err(_) => price(field, raw.get()).map(Some),
    }
}

fn parse<'a, T: Deserialize<'a>>(text: Option<&'a str>, cut: &mut bool) -> Option<T> {
    let text = text.map(str::trim).filter(|text| !text.is_empty() && *text != "null")?;
    let read = serde_json::from_str(text);
    // What is JSON to its end, but of another shape, was not cut.
    *cut |= read.as_ref().is_err_and(serde_json::Error::is_eof);
    read.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(process: &'a str, outputs: &'a str, metadata: &'a str) -> Texts<'a> {
        Texts { process_data: Some(process), outputs: Some(outputs), execution_metadata: Some(metadata) }
    }

    fn read(process: &'static str, outputs: &'static str, metadata: &'static str) -> Used<'static> {
        match used(texts(process, outputs, metadata)).unwrap() {
            Said::Used(used) => used,
            other @ (Said::Nothing | Said::Cut) => panic!("{other:?}"),
        }
    }

    const FULL: &str = r#"{"model_provider":"langgenius/openai/openai","model_name":"gpt-4o","usage":
        {"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"total_price":"0.0001250","currency":"USD"}}"#;

    #[test]
    fn process_data_comes_first_then_outputs_then_execution_metadata() {
        let other = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"total_price":"9","currency":"JPY"}}"#;
        let sum = r#"{"total_tokens":7,"total_price":"0.5","currency":"EUR"}"#;
        let first = read(FULL, other, sum);
        assert_eq!((first.input_tokens, first.output_tokens, first.currency.as_str()), (10, 5, "USD"));
        assert_eq!((first.provider.as_ref(), first.model.as_ref()), ("langgenius/openai/openai", "gpt-4o"));
        assert_eq!(first.price.to_string(), "0.0001250");
        let second = read(r#"{"model_provider":"p","model_name":"m"}"#, other, sum);
        assert_eq!((second.total_tokens, second.model.as_ref(), second.currency.as_str()), (3, "m", "JPY"));
        let third = read("null", "", sum);
        assert_eq!((third.input_tokens, third.output_tokens, third.undivided), (7, 0, true));
        assert_eq!(third.currency, "EUR");
    }

    #[test]
    fn a_text_that_was_cut_gives_way_to_the_next() {
        let whole = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
        assert_eq!(read(&FULL[..60], whole, "{}").total_tokens, 3);
        assert_eq!(used(texts(&FULL[..60], "{}", "{}")).unwrap(), Said::Cut);
        assert_eq!(used(texts("{}", r#"{"usage":null}"#, r#"{"total_tokens":0}"#)).unwrap(), Said::Nothing);
    }

    #[test]
    fn prices_are_strings_numbers_or_sums_of_parts_and_never_floats() {
        let price = |text: &str| {
            let process = format!(r#"{{"usage":{{"prompt_tokens":1,{text}}}}}"#);
            match used(texts(&process, "", "")) {
                Ok(Said::Used(used)) => Ok(used.price.normalize().to_string()),
                Ok(other @ (Said::Nothing | Said::Cut)) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        assert_eq!(price(r#""total_price":"0.1000003""#).unwrap(), "0.1000003");
        assert_eq!(price(r#""total_price":0.0034500000000000004"#).unwrap(), "0.00345");
        assert_eq!(price(r#""total_price":1e-05"#).unwrap(), "0.00001");
        assert_eq!(price(r#""prompt_price":"0.1","completion_price":0.2"#).unwrap(), "0.3");
        for (bad, word) in [(r#""total_price":"a lot""#, "total_price"), (r#""total_price":-1"#, "negative")]
        {
            assert!(price(bad).unwrap_err().contains(word), "{bad}");
        }
        let negative = used(texts(r#"{"usage":{"prompt_tokens":-1,"completion_tokens":0}}"#, "", ""));
        assert_eq!(negative.unwrap_err().to_string(), "prompt_tokens: must not be negative, but is -1");
    }
}
