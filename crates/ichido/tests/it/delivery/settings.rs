//! `[delivery]`: the file, then the environment, then flags.

use super::receiver::Reply;
use super::{Run, Stage};
use crate::support::{Process, eventually};

/// Where nobody listens.
const ELSEWHERE: &str = "https://localhost:1/";

impl Stage {
    fn here(&self) -> String {
        format!("https://localhost:{}/v1/usage", self.receiver.address.port())
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path().join("ichido.toml"), text).unwrap();
    }

    /// A command whose environment names no endpoint, unless it does so now.
    fn told(&self, args: &[&str], more: &[(&str, &str)]) -> Run {
        let mut command = self.command(args);
        command.env_remove("EXTERNAL_API_ENDPOINT").envs(more.iter().copied());
        Run::of(command.output().unwrap())
    }
}

#[test]
fn the_environment_wins_over_the_file_and_a_flag_over_both() {
    let stage = Stage::new();
    let (here, file) = (stage.here(), stage.input(0..4));
    let send = ["send", file.to_str().unwrap()];
    stage.write(&format!("[delivery]\nendpoint = \"{here}\"\nbatch_size = 2\ndata_dir = \"kept\"\n"));
    stage.told(&send, &[]).ends_with(0);
    assert_eq!(stage.receiver.seen().len(), 2, "two batches of two");
    assert!(stage.path().join("kept/spool").is_dir() && !stage.path().join("data").exists());
    stage.told(&send, &[("BATCH_SIZE", "4")]).ends_with(0);
    assert_eq!(stage.receiver.seen().len(), 3, "one of four");
    stage.write(&format!("[delivery]\nendpoint = \"{ELSEWHERE}\"\nmax_retries = 0\n"));
    stage.told(&send, &[("EXTERNAL_API_ENDPOINT", &here)]).ends_with(0);
    let flags = ["--endpoint", here.as_str(), "--data-dir", "other"];
    stage.told(&[&send[..], &flags].concat(), &[("EXTERNAL_API_ENDPOINT", ELSEWHERE)]).ends_with(0);
    assert!(stage.path().join("other/spool").is_dir());
    // What is set to nothing is not set.
    stage.write(&format!("[delivery]\nendpoint = \"{here}\"\n"));
    stage.told(&send, &[("EXTERNAL_API_ENDPOINT", "")]).ends_with(0);
}

#[test]
fn each_command_of_the_delivery_finds_the_same_directory() {
    let stage = Stage::new();
    let (here, file) = (stage.here(), stage.input(0..1));
    let settings = stage.path().join("elsewhere.toml");
    let text = format!("[delivery]\nendpoint = \"{here}\"\ndata_dir = \"kept\"\nmax_retries = 0\n");
    std::fs::write(&settings, text).unwrap();
    let settings = settings.to_str().unwrap();
    let with = |args: &[&str]| stage.told(&[args, &["--config", settings]].concat(), &[]);
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    with(&["send", file.to_str().unwrap()]).ends_with(3);
    assert!(with(&["spool", "list"]).stdout.contains("1 of 1"));
    assert!(stage.told(&["spool", "list", "--data-dir", "kept"], &[]).stdout.contains("1 of 1"));
    assert!(stage.told(&["spool", "list"], &[]).stdout.contains("0 of 0"));
    stage.receiver.does(|_| Reply::Say(422, String::new()));
    with(&["spool", "resend", "--force"]).ends_with(4);
    assert!(with(&["failed", "list"]).stdout.contains("1 of 1"));
    stage.receiver.does(|_| Reply::Take);
    with(&["failed", "resend", "--all"]).ends_with(0);
    stage.receiver.has_each_once(1);
}

#[test]
fn invalid_setting_is_named_with_the_origin_of_its_value() {
    let stage = Stage::new();
    let here = stage.here();
    let told = |section: &str, more: &[(&str, &str)]| {
        stage.write(&format!("[delivery]\n{section}\n"));
        let run = stage.told(&["send", "/dev/null"], more);
        run.ends_with(2);
        assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
        run.stderr.trim_end().strip_prefix("ichido: ").unwrap().to_owned()
    };
    let endpoint = format!("endpoint = \"{here}\"\n");
    for (key, value, variable, same, words) in [
        ("max_retries", "50", "MAX_RETRIES", "50", "is 50; it must be between 0 and 20"),
        ("conflict", "\"hunter2\"", "EXTERNAL_API_CONFLICT", "hunter2", "must be auto, batch or record"),
        ("resend_window", "\"hunter2\"", "RESEND_WINDOW", "hunter2", "must look like 22:00-06:00 Asia/Tokyo"),
        (
            "user_agent",
            "\"a\\u0001\"",
            "EXTERNAL_API_USER_AGENT",
            "a\u{1}",
            "contains characters that are not allowed in a header",
        ),
    ] {
        let line = told(&format!("{endpoint}{key} = {value}"), &[]);
        assert_eq!(line, format!("delivery.{key}: {words} (ichido.toml:3)"));
        let line = told(&endpoint, &[(variable, same)]);
        assert_eq!(line, format!("delivery.{key}: {words} (environment variable {variable})"));
    }
    assert_eq!(told("endpoint = \"http://u:hunter2@h/\"", &[]), {
        "delivery.endpoint: must not contain a user name or password; use EXTERNAL_API_TOKEN (ichido.toml:2)"
    });
    assert!(told("", &[]).starts_with("delivery.endpoint: is not set; name the receiver with --endpoint"));
    for (section, error) in [
        (
            "endpiont = \"https://u:hunter2@h/\"",
            "delivery.endpiont: unknown key; did you mean endpoint? (ichido.toml:2)",
        ),
        ("max_retries = \"hunter2\"", "delivery.max_retries: expected u32, found a string (ichido.toml:2)"),
        ("endpoint = [\"hunter2\"]", "delivery.endpoint: expected a string, found a list (ichido.toml:2)"),
        (
            "token = \"hunter2\"",
            "delivery.token: does not belong in the settings file; set EXTERNAL_API_TOKEN instead (ichido.toml:2)",
        ),
    ] {
        assert_eq!(told(section, &[]), error);
    }
    stage.write("");
    let run = stage.told(&["send", "/dev/null", "--endpoint", "http://hunter2"], &[]);
    let line = "ichido: delivery.endpoint: must start with https:// (--endpoint)";
    assert_eq!(run.ends_with(2).stderr.trim_end(), line);
    assert!(!stage.path().join("data").exists());
}

#[test]
fn a_token_of_the_environment_wins_over_a_file_with_one() {
    let stage = Stage::new();
    let (here, file) = (stage.here(), stage.input(0..1));
    let send = ["send", file.to_str().unwrap()];
    stage.write(&format!("[delivery]\nendpoint = \"{here}\"\ntoken_file = \"token\"\n"));
    stage.told(&send, &[]).ends_with(0);
    let no_token = [("EXTERNAL_API_TOKEN", "")];
    let run = stage.told(&send, &no_token);
    assert!(run.ends_with(2).stderr.contains("delivery.token_file: cannot read token: "), "{}", run.stderr);
    std::fs::write(stage.path().join("token"), "of-the-file\n").unwrap();
    stage.told(&send, &no_token).ends_with(0);
    assert_eq!(stage.receiver.seen().last().unwrap().headers["authorization"], "Bearer of-the-file");
}

#[test]
fn the_daemon_sends_because_there_is_a_section() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    stage.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).ends_with(3);
    stage.receiver.does(|_| Reply::Take);
    let meter = "[meter]\nlisten = \"127.0.0.1:0\"\n";
    let start = |text: &str| {
        stage.write(text);
        let mut command = stage.command(&["run", "--admin", "off"]);
        Process::start(command.env_remove("EXTERNAL_API_ENDPOINT"))
    };
    let mut alone = start(meter);
    eventually("the start line", || alone.stderr().contains("meter listening on").then_some(()));
    assert!(!alone.stderr().contains("delivering"), "{}", alone.stderr());
    alone.signal("TERM");
    assert_eq!(alone.exit_code(), 0, "{}", alone.stderr());
    let mut both = start(&format!("{meter}[delivery]\nendpoint = \"{}\"\n", stage.here()));
    eventually("the spool is empty", || (stage.receiver.counts().len() == 3).then_some(()));
    both.signal("TERM");
    assert_eq!(both.exit_code(), 0, "{}", both.stderr());
    assert!(
        both.stderr().contains("meter listening on")
            && both.stderr().contains("delivering to https://localhost:")
    );
    stage.receiver.has_each_once(3);
}

#[test]
fn check_shows_where_batches_go_and_what_waits() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    stage.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).ends_with(3);
    stage.write(&format!("[delivery]\nendpoint = \"{}\"\nbatch_size = 50\n", stage.here()));
    let run = stage.told(&["check"], &[]);
    let place = format!("https://localhost:{}", stage.receiver.address.port());
    for line in [
        format!("ok       delivery  to {place}, up to 50 records per batch"),
        "ok       delivery  3 batches in the spool, 0 in failed, in data".to_owned(),
        format!("ok       receiver  {place} accepts connections"),
    ] {
        assert!(run.ends_with(0).stdout.contains(&line), "{line}: {}", run.stdout);
    }
    let asked = stage.receiver.seen().len();
    stage.write("[delivery]\nendpoint = \"https://u:hunter2@h/\"\n");
    let run = stage.told(&["check"], &[]);
    assert!(
        run.ends_with(1).stdout.contains("FAILED   delivery  delivery.endpoint: must not"),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains("hunter2"));
    assert_eq!(stage.receiver.seen().len(), asked, "nothing was sent");
}
