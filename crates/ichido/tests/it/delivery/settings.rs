//! The `[delivery]` settings: flags override the environment, which overrides the file.

use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;

use super::{Fixture, Run};

/// An endpoint where nothing listens.
const UNREACHABLE: &str = "https://localhost:1/";

impl Fixture {
    fn write_settings(&self, text: &str) {
        std::fs::write(self.path().join("ichido.toml"), text).unwrap();
    }

    /// Runs a command without `EXTERNAL_API_ENDPOINT`, unless `variables` contains it.
    fn run_without_endpoint(&self, args: &[&str], variables: &[(&str, &str)]) -> Run {
        let mut command = self.command(args);
        command.env_remove("EXTERNAL_API_ENDPOINT").envs(variables.iter().copied());
        Run::of(command.output().unwrap())
    }
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let fixture = Fixture::new();
    let (endpoint, file) = (fixture.url("/v1/usage"), fixture.input(0..4));
    let send = ["send", file.to_str().unwrap()];
    fixture.write_settings(&format!(
        "[delivery]\nendpoint = \"{endpoint}\"\nbatch_size = 2\ndata_dir = \"kept\"\n"
    ));
    fixture.run_without_endpoint(&send, &[]).exits_with(0);
    assert_eq!(fixture.receiver.batch_count(), 2, "two batches of two");
    assert!(fixture.path().join("kept/spool").is_dir() && !fixture.path().join("data").exists());
    fixture.run_without_endpoint(&send, &[("BATCH_SIZE", "4")]).exits_with(0);
    assert_eq!(fixture.receiver.batch_count(), 3, "one batch of four");
    fixture.write_settings(&format!("[delivery]\nendpoint = \"{UNREACHABLE}\"\nmax_retries = 0\n"));
    fixture.run_without_endpoint(&send, &[("EXTERNAL_API_ENDPOINT", &endpoint)]).exits_with(0);
    let flags = ["--endpoint", endpoint.as_str(), "--data-dir", "other"];
    fixture
        .run_without_endpoint(&[&send[..], &flags].concat(), &[("EXTERNAL_API_ENDPOINT", UNREACHABLE)])
        .exits_with(0);
    assert!(fixture.path().join("other/spool").is_dir());
    // An empty variable counts as unset.
    fixture.write_settings(&format!("[delivery]\nendpoint = \"{endpoint}\"\n"));
    fixture.run_without_endpoint(&send, &[("EXTERNAL_API_ENDPOINT", "")]).exits_with(0);
}

#[test]
fn all_delivery_commands_use_the_same_data_directory() {
    let fixture = Fixture::new();
    let (endpoint, file) = (fixture.url("/v1/usage"), fixture.input(0..1));
    let settings = fixture.path().join("other.toml");
    let text = format!("[delivery]\nendpoint = \"{endpoint}\"\ndata_dir = \"kept\"\nmax_retries = 0\n");
    std::fs::write(&settings, text).unwrap();
    let settings = settings.to_str().unwrap();
    let with = |args: &[&str]| fixture.run_without_endpoint(&[args, &["--config", settings]].concat(), &[]);
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    with(&["send", file.to_str().unwrap()]).exits_with(3);
    assert!(with(&["spool", "list"]).stdout.contains("1 of 1"));
    assert!(
        fixture.run_without_endpoint(&["spool", "list", "--data-dir", "kept"], &[]).stdout.contains("1 of 1")
    );
    assert!(fixture.run_without_endpoint(&["spool", "list"], &[]).stdout.contains("0 of 0"));
    fixture.receiver.on_batch(|_| Reply::Status(422, String::new()));
    with(&["spool", "resend", "--force"]).exits_with(4);
    assert!(with(&["failed", "list"]).stdout.contains("1 of 1"));
    fixture.receiver.on_batch(|_| Reply::Accept);
    with(&["failed", "resend", "--all"]).exits_with(0);
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn invalid_setting_is_named_with_the_origin_of_its_value() {
    let fixture = Fixture::new();
    let endpoint = fixture.url("/v1/usage");
    let error_line = |section: &str, variables: &[(&str, &str)]| {
        fixture.write_settings(&format!("[delivery]\n{section}\n"));
        let run = fixture.run_without_endpoint(&["send", "/dev/null"], variables);
        run.exits_with(2);
        assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
        run.stderr.trim_end().strip_prefix("ichido: ").unwrap().to_owned()
    };
    let endpoint_line = format!("endpoint = \"{endpoint}\"\n");
    for (key, value, variable, variable_value, message) in [
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
        let line = error_line(&format!("{endpoint_line}{key} = {value}"), &[]);
        assert_eq!(line, format!("delivery.{key}: {message} (ichido.toml:3)"));
        let line = error_line(&endpoint_line, &[(variable, variable_value)]);
        assert_eq!(line, format!("delivery.{key}: {message} (environment variable {variable})"));
    }
    assert_eq!(error_line("endpoint = \"http://u:hunter2@h/\"", &[]), {
        "delivery.endpoint: must not contain a user name or password; use EXTERNAL_API_TOKEN (ichido.toml:2)"
    });
    assert!(
        error_line("", &[]).starts_with("delivery.endpoint: is not set; name the receiver with --endpoint")
    );
    fixture.write_settings("");
    let run = fixture.run_without_endpoint(&["send", "/dev/null", "--endpoint", "http://hunter2"], &[]);
    let line = "ichido: delivery.endpoint: must start with https:// (--endpoint)";
    assert_eq!(run.exits_with(2).stderr.trim_end(), line);
    assert!(!fixture.path().join("data").exists());
}

#[test]
fn token_variable_overrides_token_file() {
    let fixture = Fixture::new();
    let (endpoint, file) = (fixture.url("/v1/usage"), fixture.input(0..1));
    let send = ["send", file.to_str().unwrap()];
    fixture.write_settings(&format!("[delivery]\nendpoint = \"{endpoint}\"\ntoken_file = \"token\"\n"));
    fixture.run_without_endpoint(&send, &[]).exits_with(0);
    let no_token = [("EXTERNAL_API_TOKEN", "")];
    let run = fixture.run_without_endpoint(&send, &no_token);
    assert!(run.exits_with(2).stderr.contains("delivery.token_file: cannot read token: "), "{}", run.stderr);
    std::fs::write(fixture.path().join("token"), "of-the-file\n").unwrap();
    fixture.run_without_endpoint(&send, &no_token).exits_with(0);
    assert_eq!(fixture.receiver.batches().last().unwrap().headers["authorization"], "Bearer of-the-file");
}

#[test]
fn delivery_section_makes_the_daemon_send() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    fixture.receiver.on_batch(|_| Reply::Accept);
    let meter = "[meter]\nlisten = \"127.0.0.1:0\"\n";
    let start = |text: &str| {
        fixture.write_settings(text);
        let mut command = fixture.command(&["run", "--admin", "off"]);
        Process::start(command.env_remove("EXTERNAL_API_ENDPOINT")).unwrap()
    };
    let mut meter_only = start(meter);
    meter_only.wait_for_stderr("meter listening on");
    assert!(!meter_only.stderr().contains("delivering"), "{}", meter_only.stderr());
    meter_only.signal("TERM");
    assert_eq!(meter_only.exit_code(), 0, "{}", meter_only.stderr());
    let mut both = start(&format!("{meter}[delivery]\nendpoint = \"{}\"\n", fixture.url("/v1/usage")));
    eventually("an empty spool", || (fixture.receiver.record_count() == 3).then_some(()));
    both.signal("TERM");
    assert_eq!(both.exit_code(), 0, "{}", both.stderr());
    assert!(
        both.stderr().contains("meter listening on")
            && both.stderr().contains("delivering to https://localhost:")
    );
    fixture.receiver.assert_each_record_once(3);
    assert_eq!(std::fs::read_dir(fixture.path().join("data/spool/.inflight")).unwrap().count(), 0);
}

#[test]
fn check_reports_the_receiver_and_the_spool() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    fixture.write_settings(&format!(
        "[delivery]\nendpoint = \"{}\"\nbatch_size = 50\n",
        fixture.url("/v1/usage")
    ));
    let run = fixture.run_without_endpoint(&["check"], &[]);
    let receiver = fixture.url("");
    for line in [
        format!("ok       delivery  to {receiver}, up to 50 records per batch"),
        "ok       delivery  3 batches in the spool, 0 in failed, in data".to_owned(),
        format!("ok       receiver  {receiver} accepts connections"),
    ] {
        assert!(run.exits_with(0).stdout.contains(&line), "{line}: {}", run.stdout);
    }
    let requests_before = fixture.receiver.batch_count();
    fixture.write_settings("[delivery]\nendpoint = \"https://u:hunter2@h/\"\n");
    let run = fixture.run_without_endpoint(&["check"], &[]);
    assert!(
        run.exits_with(1).stdout.contains("FAILED   delivery  delivery.endpoint: must not"),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains("hunter2"));
    assert_eq!(fixture.receiver.batch_count(), requests_before, "nothing was sent");
}
