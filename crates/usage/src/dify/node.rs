//! Reads the usage of one node of a workflow run.
//!
//! It is in `process_data.{model_provider, model_name, usage}`, or else in `outputs.usage`, or else in
//! `execution_metadata.{total_tokens, total_price, currency}`. A column that Dify has truncated is not valid JSON;
//! it is treated as missing, and the next one is read.

use std::borrow::Cow;

use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{App, Error, UsageEvent, User, count, price, total};
use crate::money;

/// Old rows store prices as floats. Digits beyond this many places are noise: Dify computes with seven.
const FLOAT_PLACES: u32 = 12;

/// Types of nodes that call no model themselves. An iteration, a loop or a tool reports the sum of nodes that have
/// rows of their own, and code may output anything under the name of usage.
pub(super) const NODE_TYPES_WITHOUT_MODEL: [&str; 18] = [
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

/// The columns of a node that may contain usage.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeTexts<'a> {
    pub(super) process_data: Option<&'a str>,
    pub(super) outputs: Option<&'a str>,
    pub(super) execution_metadata: Option<&'a str>,
}

/// The usage of a node that called a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Used<'a> {
    pub(super) provider: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) total_tokens: u64,
    pub(super) price: Decimal,
    pub(super) currency: String,
    /// Only a total of tokens was given.
    pub(super) total_only: bool,
}

impl<'a> Used<'a> {
    /// Makes an event of the usage.
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

/// What the columns of a node say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeUsage<'a> {
    /// The node called a model.
    Used(Used<'a>),
    /// The node called no model.
    None,
    /// Dify has truncated the columns, and nothing can be read from them.
    Truncated,
}

#[derive(Deserialize)]
struct ProcessData<'a> {
    #[serde(borrow, default)]
    model_provider: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    model_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Outputs<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

/// A `usage` object, or the similar part of `execution_metadata`.
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
pub(super) fn node_usage(texts: NodeTexts<'_>) -> Result<NodeUsage<'_>, Error> {
    let mut truncated = false;
    let process_data: Option<ProcessData<'_>> = parse(texts.process_data, &mut truncated);
    let outputs: Option<Outputs<'_>> = parse(texts.outputs, &mut truncated);
    let (provider, model, first) = match process_data {
        Some(data) => (data.model_provider, data.model_name, data.usage),
        None => (None, None, None),
    };
    let candidates = [first, outputs.and_then(|outputs| outputs.usage)].into_iter().flatten();
    let usage = match candidates.map(RawValue::get).find(|text| text.starts_with('{')) {
        Some(text) => Some(
            serde_json::from_str::<Usage<'_>>(text)
                .map_err(|_| Error::other("usage", "is not a usage object"))?,
        ),
        None => parse::<Usage<'_>>(texts.execution_metadata, &mut truncated)
            .filter(|usage| usage.total_tokens.is_some_and(|tokens| tokens != 0)),
    };
    let Some(usage) = usage else {
        return Ok(if truncated { NodeUsage::Truncated } else { NodeUsage::None });
    };
    let price = usage.price()?;
    let (input_tokens, output_tokens, total_tokens, total_only) = usage.tokens()?;
    Ok(NodeUsage::Used(Used {
        provider: provider.unwrap_or_default(),
        model: model.unwrap_or_default(),
        input_tokens,
        output_tokens,
        total_tokens,
        price,
        currency: usage.currency.unwrap_or_default().into_owned(),
        total_only,
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

/// Reads a price: a decimal in a string, or a number in old rows.
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

fn parse<'a, T: Deserialize<'a>>(text: Option<&'a str>, truncated: &mut bool) -> Option<T> {
    let text = text.map(str::trim).filter(|text| !text.is_empty() && *text != "null")?;
    let read = serde_json::from_str(text);
    // Complete JSON of another shape was not truncated.
    *truncated |= read.as_ref().is_err_and(serde_json::Error::is_eof);
    read.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(process: &'a str, outputs: &'a str, metadata: &'a str) -> NodeTexts<'a> {
        NodeTexts { process_data: Some(process), outputs: Some(outputs), execution_metadata: Some(metadata) }
    }

    fn used(process: &'static str, outputs: &'static str, metadata: &'static str) -> Used<'static> {
        match node_usage(texts(process, outputs, metadata)).unwrap() {
            NodeUsage::Used(used) => used,
            other @ (NodeUsage::None | NodeUsage::Truncated) => panic!("{other:?}"),
        }
    }

    const FULL: &str = r#"{"model_provider":"langgenius/openai/openai","model_name":"gpt-4o","usage":
        {"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"total_price":"0.0001250","currency":"USD"}}"#;

    #[test]
    fn process_data_comes_first_then_outputs_then_execution_metadata() {
        let other = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"total_price":"9","currency":"JPY"}}"#;
        let sum = r#"{"total_tokens":7,"total_price":"0.5","currency":"EUR"}"#;
        let first = used(FULL, other, sum);
        assert_eq!((first.input_tokens, first.output_tokens, first.currency.as_str()), (10, 5, "USD"));
        assert_eq!((first.provider.as_ref(), first.model.as_ref()), ("langgenius/openai/openai", "gpt-4o"));
        assert_eq!(first.price.to_string(), "0.0001250");
        let second = used(r#"{"model_provider":"p","model_name":"m"}"#, other, sum);
        assert_eq!((second.total_tokens, second.model.as_ref(), second.currency.as_str()), (3, "m", "JPY"));
        let third = used("null", "", sum);
        assert_eq!((third.input_tokens, third.output_tokens, third.total_only), (7, 0, true));
        assert_eq!(third.currency, "EUR");
    }

    #[test]
    fn truncated_column_is_skipped() {
        let whole = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
        assert_eq!(used(&FULL[..60], whole, "{}").total_tokens, 3);
        assert_eq!(node_usage(texts(&FULL[..60], "{}", "{}")).unwrap(), NodeUsage::Truncated);
        assert_eq!(
            node_usage(texts("{}", r#"{"usage":null}"#, r#"{"total_tokens":0}"#)).unwrap(),
            NodeUsage::None
        );
    }

    #[test]
    fn prices_are_strings_numbers_or_sums_and_never_floats() {
        let price = |text: &str| {
            let process = format!(r#"{{"usage":{{"prompt_tokens":1,{text}}}}}"#);
            match node_usage(texts(&process, "", "")) {
                Ok(NodeUsage::Used(used)) => Ok(used.price.normalize().to_string()),
                Ok(other @ (NodeUsage::None | NodeUsage::Truncated)) => panic!("{other:?}"),
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
        let negative = node_usage(texts(r#"{"usage":{"prompt_tokens":-1,"completion_tokens":0}}"#, "", ""));
        assert_eq!(negative.unwrap_err().to_string(), "prompt_tokens: must not be negative, but is -1");
    }
}
