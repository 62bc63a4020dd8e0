use std::collections::HashMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{Secret, default_file, env_example, markdown_table, schema};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawFile {
    door: RawDoor,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawDoor {
    /// Where the door
    /// listens.
    #[schemars(extend("x-env" = "DOOR_LISTEN"))]
    listen: String,
    /// How many may wait.
    #[schemars(range(min = 1, max = 9), extend("x-env" = "DOOR_QUEUE"))]
    queue: u64,
    /// Who may enter.
    #[schemars(extend("x-env" = "DOOR_RULE"))]
    rule: Rule,
    /// Whether it rings.
    #[schemars(extend("x-env" = "DOOR_BELL"))]
    bell: bool,
    /// The password.
    #[schemars(extend("x-env" = "DOOR_SECRET", "x-env-only" = true, "x-never-empty" = true))]
    secret: Option<Secret>,
    hosts: Vec<String>,
    guests: Vec<RawGuest>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Rule {
    /// Everybody.
    #[default]
    All,
    /// Nobody.
    None,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawGuest {
    /// The guest's name.
    name: String,
    #[schemars(range(min = 1, max = 3))]
    tables: Option<u64>,
}

impl Default for RawDoor {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:80".to_owned(),
            queue: 5,
            rule: Rule::All,
            bell: false,
            secret: None,
            hosts: Vec::new(),
            guests: Vec::new(),
        }
    }
}

fn read(text: &str, variables: &[(&str, &str)], flags: &[Flag]) -> Result<(Sources, RawFile), String> {
    let variables: HashMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let file =
        File::parse(&PathBuf::from("door.toml"), text.to_owned()).map_err(|error| error.to_string())?;
    let get = |name: &str| variables.get(name).map(Into::into);
    let sources =
        Sources::merge(&schema::<RawFile>(), Some(file), get, flags).map_err(|error| error.to_string())?;
    let read = sources.section::<RawFile>("").map_err(|error| error.to_string())?;
    Ok((sources, read))
}

fn error(text: &str) -> String {
    read(text, &[], &[]).unwrap_err()
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let flag =
        |value: &str| [Flag { setting: "door.listen", name: "--listen", value: Some(value.to_owned()) }];
    let text = "[door]\nlisten = \"file\"\nqueue = 7\n";
    let (sources, file) =
        read(text, &[("DOOR_LISTEN", "variable"), ("DOOR_BELL", "on")], &flag("flag")).unwrap();
    assert_eq!((file.door.listen.as_str(), file.door.queue, file.door.bell), ("flag", 7, true));
    assert_eq!(sources.origin("door.listen"), Origin::Flag("--listen".to_owned()));
    assert_eq!(sources.origin("door.queue"), Origin::File("door.toml:3".to_owned()));
    assert_eq!(sources.origin("door.bell"), Origin::Variable("DOOR_BELL".to_owned()));
    assert_eq!(sources.origin("door.rule"), Origin::Default);
    assert!(sources.has_section("door") && !sources.has_section("window"));
    let (_, file) = read(text, &[("DOOR_LISTEN", "variable")], &[]).unwrap();
    assert_eq!(file.door.listen, "variable");
    let (_, file) = read(text, &[("DOOR_LISTEN", "")], &[]).unwrap();
    assert_eq!(file.door.listen, "file", "an empty variable sets nothing");
}

#[test]
fn errors_name_the_setting_and_the_line() {
    assert_eq!(
        error("[door]\nlisten = 5\n"),
        "door.listen: expected a string, found a whole number (door.toml:2)"
    );
    assert_eq!(
        error("[door]\n\nlistn = \"x\"\n"),
        "door.listn: unknown key; did you mean listen? (door.toml:3)"
    );
    assert_eq!(error("[gate]\n"), "gate: unknown key (door.toml:1)");
    assert_eq!(error("[door]\nrule = \"hunter2\"\n"), "door.rule: must be all or none (door.toml:2)");
    assert_eq!(error("[door]\nqueue = 10\n"), "door.queue: is 10; it must be between 1 and 9 (door.toml:2)");
    let guests = "[[door.guests]]\nname = \"a\"\n[[door.guests]]\ntables = 4\n";
    assert_eq!(error(guests), "door.guests[1].tables: is 4; it must be between 1 and 3 (door.toml:4)");
    let guests = "[[door.guests]]\nname = \"a\"\n[[door.guests]]\nname = []\n";
    assert_eq!(error(guests), "door.guests[1].name: expected a string, found a list (door.toml:4)");
    let pasted = error("[door]\n\"redis://:hunter2@h\" = 1\n");
    assert!(pasted.contains("door.toml:2") && !pasted.contains("hunter2"), "{pasted}");
    assert!(error("[door\nqueue = 5\n").starts_with("door.toml:1: "), "{}", error("[door\n"));
}

#[test]
fn errors_name_the_variable_and_do_not_repeat_its_value() {
    for (name, value, problem) in [
        ("DOOR_QUEUE", "hunter2", "door.queue: must be a whole number (environment variable DOOR_QUEUE)"),
        ("DOOR_QUEUE", "0", "door.queue: is 0; it must be between 1 and 9 (environment variable DOOR_QUEUE)"),
        ("DOOR_BELL", "hunter2", "door.bell: must be on or off (environment variable DOOR_BELL)"),
        (
            "DOOR_SECRET",
            " ",
            "door.secret: is empty; unset the variable or give it a value (environment variable DOOR_SECRET)",
        ),
        ("DOOR_RULE", "hunter2", "door.rule: must be all or none (environment variable DOOR_RULE)"),
    ] {
        assert_eq!(read("", &[(name, value)], &[]).unwrap_err(), problem);
    }
}

#[test]
fn secrets_come_from_the_environment_and_are_masked() {
    let refused = error("[door]\nsecret = \"hunter2\"\n");
    assert_eq!(
        refused,
        "door.secret: does not belong in the settings file; set DOOR_SECRET instead (door.toml:2)"
    );
    let (sources, file) = read("", &[("DOOR_SECRET", "hunter2")], &[]).unwrap();
    assert_eq!(file.door.secret.as_ref().unwrap().expose(), "hunter2");
    let shown = sources.effective();
    let secret = shown.iter().find(|setting| setting.path == "door.secret").unwrap();
    assert_eq!(
        (secret.value.as_ref().unwrap().as_str(), &secret.origin.to_string()),
        (Some("***"), &"environment variable DOOR_SECRET".to_owned())
    );
    assert!(!format!("{shown:?} {file:?}").contains("hunter2"));
}

#[test]
fn checks_of_a_section_say_where_the_value_came_from() {
    let (sources, _) = read("[door]\nlisten = \"x\"\n", &[], &[]).unwrap();
    let invalid = Invalid::new("door.listen", "is not an address");
    assert_eq!(sources.explain(&invalid).to_string(), "door.listen: is not an address (door.toml:2)");
    let unset = Invalid::new("door.queue", "is too short");
    assert_eq!(sources.explain(&unset).to_string(), "door.queue: is too short");
}

#[test]
fn effective_values_include_defaults_and_list_elements() {
    let (sources, _) =
        read("[[door.guests]]\nname = \"a\"\n[[door.guests]]\nname = \"b\"\n", &[], &[]).unwrap();
    let names: Vec<(String, Option<String>)> = sources
        .effective()
        .into_iter()
        .filter(|setting| setting.path.ends_with("name") || setting.path == "door.queue")
        .map(|setting| (setting.path, setting.value.map(|value| value.to_string())))
        .collect();
    let expected = [("door.queue", "5"), ("door.guests[0].name", "\"a\""), ("door.guests[1].name", "\"b\"")];
    assert_eq!(names, expected.map(|(path, value)| (path.to_owned(), Some(value.to_owned()))));
}

#[test]
fn one_definition_describes_itself() {
    let schema = schema::<RawFile>();
    let table = markdown_table(&schema, "door");
    assert!(
        table.contains("| `listen` | `\"127.0.0.1:80\"` | `DOOR_LISTEN` | Where the door listens. |"),
        "{table}"
    );
    assert!(table.contains("| `queue` | `5` | `DOOR_QUEUE` | How many may wait. (1 to 9) |"), "{table}");
    assert!(
        table.contains("| `rule` | `\"all\"` | `DOOR_RULE` | Who may enter. (`all` or `none`) |"),
        "{table}"
    );
    assert!(table.contains("| (variable only) |  | `DOOR_SECRET` | The password. |"), "{table}");
    let example = env_example(&schema);
    assert!(example.contains("# How many may wait. (1 to 9)\n#DOOR_QUEUE=5\n"), "{example}");
    let file = default_file(&schema);
    assert!(
        file.starts_with("#[door]\n") && file.contains("#queue = 5\n") && !file.contains("secret"),
        "{file}"
    );
    let uncommented: String = file
        .lines()
        .filter(|line| !line.starts_with("# "))
        .map(|line| line.trim_start_matches('#').to_owned() + "\n")
        .collect();
    let (_, read) = read(&uncommented, &[], &[]).unwrap();
    assert_eq!(read.door.queue, RawDoor::default().queue);
}

#[test]
fn a_variable_of_another_section_does_not_matter() {
    let get = |name: &str| (name == "DOOR_QUEUE").then(|| "many".into());
    let sources = Sources::merge(&schema::<RawFile>(), None, get, &[]).unwrap();
    assert!(sources.section::<RawDoor>("window").is_ok());
    assert!(sources.section::<RawDoor>("door").is_err());
}

#[test]
fn invalid_value_in_the_file_is_located_even_if_a_flag_overrides_it() {
    let file = File::parse(&PathBuf::from("door.toml"), "[door]\nlisten = 5\n".to_owned()).unwrap();
    let flags = [Flag { setting: "door.listen", name: "--listen", value: Some("x".to_owned()) }];
    let sources = Sources::merge(&schema::<RawFile>(), Some(file), |_| None, &flags).unwrap();
    let error = sources.check_file::<RawFile>().unwrap_err().to_string();
    assert_eq!(error, "door.listen: expected a string, found a whole number (door.toml:2)");
}

#[test]
fn changes_name_each_setting_with_another_value() {
    let (before, _) =
        read("[door]\nqueue = 3\n[[door.guests]]\nname = \"a\"\n", &[("DOOR_SECRET", "hunter2")], &[])
            .unwrap();
    let after = "[door]\nbell = true\nlisten = \"127.0.0.1:80\"\n[[door.guests]]\nname = \"b\"\n[[door.guests]]\ntables = 2\n";
    let (after, _) = read(after, &[("DOOR_SECRET", "hunter3")], &[]).unwrap();
    let names = ["door.queue", "door.bell", "door.secret", "door.guests[0].name", "door.guests[1].tables"];
    let mut changes = after.changes(&before);
    assert!(!changes.contains(&"door.listen".to_owned()), "set to its default");
    changes.sort();
    let mut names = names.map(ToOwned::to_owned);
    names.sort();
    assert_eq!(changes, names);
    assert!(after.changes(&after).is_empty());
}
