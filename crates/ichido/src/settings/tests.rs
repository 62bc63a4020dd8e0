use std::time::Duration;

use proptest::prelude::*;

use ichido_admin::LogKeys;

use super::*;

fn load(text: &str) -> Result<Settings, String> {
    load_with(text, &[])
}

fn load_with(text: &str, flags: &[Flag]) -> Result<Settings, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ichido.toml");
    std::fs::write(&path, text).unwrap();
    let place = format!("{}/", dir.path().display());
    Settings::load(Some(&path), flags).map_err(|failure| failure.to_string().replace(&place, ""))
}

#[test]
fn defaults_match_the_documentation() {
    let settings = load("").unwrap();
    let ledger = &settings.ledger;
    assert_eq!((ledger.url.as_str(), ledger.timeout), ("file:data/ledger", Duration::from_secs(5)));
    assert_eq!((ledger.fallback.as_str(), ledger.fallback_pause), ("memory:", Duration::from_secs(60)));
    assert_eq!(ledger.directory(), Some(Path::new("data/ledger")));
    assert_eq!(settings.claims.log_keys, LogKeys::Hashed);
    assert_eq!(load("[claims]\nlog_keys = \"verbatim\"").unwrap().claims.log_keys, LogKeys::Verbatim);
}

#[test]
fn examples_in_the_documentation_are_valid() {
    let page = include_str!("../../../../docs/events.md");
    let examples: Vec<_> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 5);
    let upstream = Some("http://127.0.0.1:3000".to_owned());
    let flags = [Flag { setting: "gateway.upstream", name: "--upstream", value: upstream }];
    for example in examples {
        let checked = load_with(example, &flags).unwrap().gateway(false);
        assert!(checked.is_ok(), "{example}: {}", checked.unwrap_err());
    }
}

#[test]
fn location_of_a_ledger_has_no_password() {
    let location = |url: &str| {
        let flags = [Flag { setting: "ledger.url", name: "--ledger", value: Some(url.to_owned()) }];
        Settings::load(None, &flags).unwrap().ledger.location()
    };
    assert_eq!(location("postgres://user:hunter2@db:5432/app?sslmode=require"), "postgres db:5432/app");
    assert_eq!(location("redis://:hun?ter@2@db"), "redis db");
    assert_eq!(location("dynamodb:"), "dynamodb");
    assert_eq!(location("file:data/ledger"), "file data/ledger");
    assert_eq!(location("file:/var/lib/ichido"), "file /var/lib/ichido");
}

#[test]
fn invalid_settings_are_named_with_their_line() {
    for (text, error) in [
        ("[ledger]\n\nurll = \"memory:\"\n", "ledger.urll: unknown key; did you mean url? (ichido.toml:3)"),
        ("[gatway]\n", "gatway: unknown key; did you mean gateway? (ichido.toml:1)"),
        (
            "[ledger]\ntimeout_ms = \"redis://:hunter2@h\"\n",
            "ledger.timeout_ms: expected u64, found a string (ichido.toml:2)",
        ),
        (
            "[ledger]\ntimeout_ms = 0\n",
            "ledger.timeout_ms: is 0; it must be between 1 and 600000 (ichido.toml:2)",
        ),
        ("[claims]\nlog_keys = \"all\"\n", "claims.log_keys: must be hashed or verbatim (ichido.toml:2)"),
        ("[console]\nbodies = \"some\"\n", "console.bodies: must be masked or shown (ichido.toml:2)"),
        (
            "[ledger]\nfallback = \"redis://:secret@h\"\n",
            "ledger.fallback: must be memory: or file:DIR, because a fallback is local (ichido.toml:2)",
        ),
        (
            "[admin]\ntoken = \"hunter2\"\n",
            "admin.token: does not belong in the settings file; set ICHIDO_ADMIN_TOKEN instead (ichido.toml:2)",
        ),
    ] {
        assert_eq!(load(text).unwrap_err(), error, "{text}");
    }
    for text in
        ["[gateway]\nadmin_token = 73313\n", "[ledger]\nurl = \"73313\n", "[ledger]\n\"73313@h\" = 1\n"]
    {
        let error = load(text).unwrap_err();
        assert!(error.contains("ichido.toml:2") && !error.contains("73313"), "{error}");
    }
}

#[test]
fn token_in_the_environment_wins_over_a_token_file_in_the_settings_file() {
    let settings = load("[delivery]\ntoken_file = \"token\"\n").unwrap();
    assert_eq!(settings.raw_delivery().unwrap().token_file.as_deref(), Some("token"));
}

/// Run with `ICHIDO_UPDATE_DOCS=1` to rewrite the files.
#[test]
fn documents_match_the_definitions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let update = std::env::var_os("ICHIDO_UPDATE_DOCS").is_some();
    let check = |name: &str, expected: &str| {
        let path = root.join(name);
        if update {
            std::fs::write(&path, expected).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written == expected, "{name} is out of date: run this test with ICHIDO_UPDATE_DOCS=1");
    };
    let page = std::fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    check("docs/configuration.md", &with_tables(&page));
    let head = "# Every environment variable that ichido reads as a setting, with its default. Generated; see docs/configuration.md.\n\n";
    check(".env.example", &format!("{head}{}\n", ichido_settings::env_example(&schema()).trim_end()));
}

/// The page with a table after each `<!-- settings: SECTION -->`.
fn with_tables(page: &str) -> String {
    const END: &str = "<!-- end -->";
    let mut pieces = page.split("<!-- settings: ");
    let mut filled = pieces.next().unwrap().to_owned();
    let mut sections = 0;
    for piece in pieces {
        let (section, rest) = piece.split_once(" -->\n").unwrap();
        let (_, rest) = rest.split_once(END).unwrap();
        let table = ichido_settings::markdown_table(&schema(), section);
        assert!(table.lines().count() > 2, "no settings in {section}");
        filled.push_str(&format!("<!-- settings: {section} -->\n{table}{END}{rest}"));
        sections += 1;
    }
    assert_eq!(sections, 17);
    filled
}

#[test]
fn every_variable_is_used_once() {
    let mut variables: Vec<String> =
        ichido_settings::settings(&schema()).into_iter().filter_map(|setting| setting.variable).collect();
    let count = variables.len();
    variables.sort();
    variables.dedup();
    assert_eq!(variables.len(), count);
}

/// Words of a settings file, right and wrong, in any order.
const WORDS: [&str; 30] = [
    "[ledger]\n",
    "[delivery]\n",
    "endpoint = ",
    "max_retries = ",
    "token_file = ",
    "[gateway]\n",
    "[[gateway.routes]]\n",
    "url = ",
    "timeout_ms = ",
    "upstream = ",
    "tenant = ",
    "key = ",
    "preset = ",
    "slack_signing_secret = ",
    "match = ",
    "retention_seconds = ",
    "\"file:x\"\n",
    "\"POST /**\"\n",
    "[\"body\"]\n",
    "-1\n",
    "99999999999999999999\n",
    "1\n",
    "true\n",
    "\"http://u:hunter2@h\"\n",
    "\"\u{0}\"\n",
    "\n",
    "=",
    "{",
    "\"\"\"",
    "キー",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_settings_file_causes_a_panic_or_reveals_a_secret(
        words in prop::collection::vec(0..WORDS.len(), 0..14),
        noise: String,
    ) {
        let text: String = words.into_iter().map(|word| WORDS[word]).collect();
        for text in [text.clone(), format!("{text}{noise}")] {
            let checked = load(&text).map(|settings| [settings.gateway(false).err(), settings.delivery().err()]);
            let errors = match checked {
                Ok(failures) => failures.into_iter().flatten().map(|failure| failure.to_string()).collect(),
                Err(error) => vec![error],
            };
            for error in errors {
                prop_assert!(!error.contains("hunter2"), "{}", error);
            }
        }
    }
}
