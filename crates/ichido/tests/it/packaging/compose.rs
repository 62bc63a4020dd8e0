//! The Compose project in `deploy/compose`.

use std::collections::BTreeSet;
use std::process::Command;

use super::{assert_settings_are_accepted, assert_validates, read, repository_path, run_ok, validator, yaml};

const FILE: &str = "deploy/compose/compose.yaml";

#[test]
fn compose_file_follows_the_specification() {
    let check = || {
        let mut command = validator("check-jsonschema");
        command.args(["--builtin-schema", "vendor.compose-spec"]);
        command
    };
    assert_validates(check, FILE, "read_only: true", "readonly: true");
}

/// The names after each `start` in a text.
fn names_after(text: &str, start: &str) -> BTreeSet<String> {
    let rests = text.split(start).skip(1);
    rests
        .map(|rest| rest.chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect())
        .collect()
}

#[test]
fn every_variable_is_documented() {
    let used = names_after(&read(FILE), "${");
    let example = format!("\n{}", read("deploy/compose/.env.example").replace("\n#ICHIDO_", "\nICHIDO_"));
    let documented: BTreeSet<_> =
        names_after(&example, "\n").into_iter().filter(|name| !name.is_empty()).collect();
    assert!(used.len() >= 5, "{used:?}");
    assert_eq!(used, documented);
}

#[test]
fn services_are_checked_for_health_and_mount_what_exists() {
    let project = yaml(FILE).remove(0);
    let services = project["services"].as_object().unwrap();
    assert!(services.contains_key("gateway") && services.len() >= 5, "{services:?}");
    let mut mounted = BTreeSet::new();
    for (name, service) in services {
        assert!(service["healthcheck"]["test"].is_array(), "{name}");
        for volume in service["volumes"].as_array().unwrap() {
            let (source, target) = volume.as_str().unwrap().split_once(':').unwrap();
            if source.starts_with('.') {
                let file = repository_path("deploy/compose").join(source);
                assert!(file.is_file(), "{name} mounts {source}, which does not exist");
                mounted.insert(target.trim_end_matches(":ro").to_owned());
            } else {
                assert!(project["volumes"].get(source).is_some(), "{source} is not a volume");
            }
        }
    }
    let provider = yaml("deploy/compose/grafana/dashboards.yaml").remove(0);
    let path = provider["providers"][0]["options"]["path"].as_str().unwrap();
    assert!(mounted.contains(&format!("{path}/ichido.json")), "{path}: {mounted:?}");
}

#[test]
fn gateway_of_the_compose_project_starts_with_its_settings() {
    assert_settings_are_accepted(&read("deploy/compose/ichido.toml"));
    let project = yaml(FILE).remove(0);
    let gateway = &project["services"]["gateway"];
    // Secrets, which do not belong into the file.
    for name in ["ICHIDO_LEDGER_URL", "ICHIDO_ADMIN_TOKEN", "ICHIDO_ADMIN_READ_TOKEN"] {
        assert!(gateway["environment"][name].is_string(), "{name}");
    }
}

#[test]
fn prometheus_accepts_the_settings_of_the_compose_project() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("token");
    std::fs::write(&secret, "a-token").unwrap();
    let settings = read("deploy/compose/prometheus.yml");
    let settings = settings.replace("/run/secrets/admin_read_token", secret.to_str().unwrap());
    std::fs::write(dir.path().join("prometheus.yml"), settings).unwrap();
    std::fs::copy(repository_path("deploy/prometheus/ichido.rules.yml"), dir.path().join("ichido.rules.yml"))
        .unwrap();
    run_ok(Command::new("promtool").args(["check", "config", "prometheus.yml"]).current_dir(dir.path()), "");
}
