//! `ichido config`: settings in effect, defaults, and the schema of the settings file.

use ichido_settings::{Effective, Origin, default_file, env_example};
use serde::Serialize;
use serde_json::Value;

use crate::args::{ConfigArgs, ConfigVerb};
use crate::output;
use crate::settings::{Settings, schema};
use ichido_serve::Failure;

#[derive(Serialize)]
struct Shown {
    setting: String,
    value: Option<Value>,
    origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
}

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    match args.verb {
        ConfigVerb::Show { all } => show(args, all),
        ConfigVerb::Default { env: true } => print(&env_example(&schema())),
        ConfigVerb::Default { env: false } => print(&default_file(&schema())),
        ConfigVerb::Schema => output::json(&schema()),
    }
}

fn show(args: &ConfigArgs, all: bool) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
    let effective = settings.effective().into_iter();
    let chosen = effective.filter(|one| all || args.common.json || one.origin != Origin::Default);
    let shown: Vec<Shown> = chosen.map(describe).collect();
    if args.common.json {
        return output::json(&shown);
    }
    if shown.is_empty() {
        outln!("Every setting has its default value. `ichido config show --all` prints them.");
        return Ok(());
    }
    let mut table = output::table(&["setting", "value", "origin"]);
    for one in &shown {
        let value = one.value.as_ref().map_or_else(|| "not set".to_owned(), Value::to_string);
        table.add_row([one.setting.as_str(), &value, &one.origin]);
    }
    table.print();
    Ok(())
}

fn describe(one: Effective) -> Shown {
    Shown {
        setting: one.path,
        value: one.value,
        origin: one.origin.to_string(),
        variable: one.setting.variable,
    }
}

fn print(text: &str) -> Result<(), Failure> {
    outln!("{}", text.trim_end());
    Ok(())
}
