//! The container image, built and run without Docker, and its SBOM.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ichido_testkit::process::Process;
use serde_json::{Value, json};

use super::{repository_path, run_ok, validator};

/// Runs a command in the image's root file system `$1` and in a mount and a network namespace of its own, as a container
/// engine does with `--read-only` and the volume `$2`: nothing else can be written. Needs root, to become the user `$3`.
const READ_ONLY: &str = r#"
set -eu
root=$1 data=$2 user=$3
ip link set lo up
shift 3
mkdir -p "$root/proc" "$root/dev"
mount --bind "$root" "$root"
mount --bind "$data" "$root/var/lib/ichido"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec unshare --root="$root" --wd=/var/lib/ichido --setgid "${user#*:}" --setuid "${user%:*}" "$@"
"#;

/// The crates of the binary, as the header of `sbom.py` says.
fn crates() -> String {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--offline", "--quiet", "--package", "ichido"]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}|{l}"]);
    run_ok(tree.current_dir(repository_path("")), "")
}

fn assert_is_cyclonedx(sbom: &Path) {
    let script = "import cyclonedx.schema as s, os; print(os.path.dirname(s.__file__) + '/_res')";
    let schemas = run_ok(validator("python").args(["-c", script]), "");
    let schemas = schemas.trim();
    let mut check = validator("check-jsonschema");
    // The schema refers to others next to it.
    check.arg("--base-uri").arg(format!("file://{schemas}/"));
    check.arg("--schemafile").arg(format!("{schemas}/bom-1.6.SNAPSHOT.schema.json")).arg(sbom);
    run_ok(&mut check, "");
}

#[test]
fn sbom_lists_what_is_linked_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sbom.cdx.json");
    let mut command = Command::new("python3");
    command.arg(repository_path("deploy/image/sbom.py")).arg(repository_path("Cargo.lock"));
    let sbom = run_ok(&mut command, &crates());
    std::fs::write(&file, &sbom).unwrap();
    assert_is_cyclonedx(&file);

    let sbom: Value = serde_json::from_str(&sbom).unwrap();
    let components = sbom["components"].as_array().unwrap();
    let find = |name: &str| components.iter().find(|component| component["name"] == name);
    let tokio = find("tokio").unwrap();
    assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64, "{tokio}");
    assert_eq!(tokio["licenses"], json!([{ "expression": "MIT" }]));
    for name in ["assert_cmd", "insta", "windows-sys"] {
        assert!(find(name).is_none(), "{name} is not part of the binary");
    }
}

/// Unpacks an archive of the image, which has one layer, and returns its settings.
fn unpack(archive: &Path, root: &Path) -> Value {
    let dir = tempfile::tempdir().unwrap();
    run_ok(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir.path()), "");
    let parse = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(dir.path().join(name)).unwrap()).unwrap()
    };
    let manifest = parse("manifest.json");
    assert_eq!(manifest[0]["Layers"].as_array().unwrap().len(), 1, "{manifest}");
    let layer = dir.path().join(manifest[0]["Layers"][0].as_str().unwrap());
    std::fs::create_dir(root).unwrap();
    run_ok(Command::new("tar").arg("-xpf").arg(layer).arg("-C").arg(root), "");
    parse(manifest[0]["Config"].as_str().unwrap())["config"].take()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

/// A command in the image, with its environment and nothing else. It joins the network of another, or has its own.
fn in_image(dir: &Path, settings: &Value, network_of: Option<&Process>, command: &[&str]) -> Command {
    let namespaces = match network_of {
        Some(process) => format!("nsenter --target {} --net unshare --mount", process.child.id()),
        None => "unshare --net --mount".to_owned(),
    };
    let mut words = namespaces.split(' ');
    let mut run = Command::new(words.next().unwrap());
    run.args(words);
    run.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    run.envs(strings(&settings["Env"]).iter().filter_map(|variable| variable.split_once('=')));
    run.args(["sh", "-c", READ_ONLY, "sh"]).arg(dir.join("root")).arg(dir.join("data"));
    run.arg(settings["User"].as_str().unwrap()).args(command);
    run
}

fn assert_settings_are_documented(settings: &Value) {
    assert_eq!(settings["User"], "10001:10001");
    assert_eq!(settings["ExposedPorts"], json!({ "8080/tcp": {}, "9090/tcp": {} }));
    assert_eq!(settings["Volumes"], json!({ "/var/lib/ichido": {} }));
    assert_eq!(settings["StopSignal"], "SIGTERM");
    let health = ["CMD", "/usr/bin/ichido", "health", "--admin", "127.0.0.1:9090"];
    assert_eq!(strings(&settings["Healthcheck"]["Test"]), health);
}

/// Builds the image, unpacks it to `root` in the directory, and returns its settings.
fn build(dir: &Path) -> Value {
    let (crates_file, archive) = (dir.join("crates"), dir.join("ichido.tar"));
    std::fs::write(&crates_file, crates()).unwrap();
    let mut build = Command::new(repository_path("deploy/image/build.sh"));
    run_ok(build.arg(env!("CARGO_BIN_EXE_ichido")).arg(&crates_file).arg(&archive), "");
    unpack(&archive, &dir.join("root"))
}

#[test]
#[ignore = "needs root and buildah: run it with `--ignored`"]
fn image_runs_without_root_on_a_read_only_file_system() {
    let dir = tempfile::tempdir().unwrap();
    // The image's user must be able to pass through it.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = build(dir.path());
    assert_settings_are_documented(&settings);
    let root = dir.path().join("root");
    assert_is_cyclonedx(&root.join("usr/share/doc/ichido/sbom.cdx.json"));
    assert!(!root.join("bin/sh").exists() && !root.join("usr/bin/sh").exists(), "the image has a shell");

    let data = dir.path().join("data");
    run_ok(Command::new("install").args(["-d", "-m", "0700", "-o", "10001"]).arg(&data), "");
    let default = [strings(&settings["Entrypoint"]), strings(&settings["Cmd"])].concat();
    let mut process = Process::start(&mut in_image(dir.path(), &settings, None, &default)).unwrap();
    process.wait_for_address("ichido claims: listening on ").unwrap();
    assert!(data.join("data/ledger").is_dir(), "the ledger is not in the volume");
    let health = strings(&settings["Healthcheck"]["Test"]);
    let mut healthy = in_image(dir.path(), &settings, Some(&process), &health[1..]);
    run_ok(&mut healthy, "");
    process.signal("TERM");
    assert_eq!(process.exit_code(), 0, "{}", process.stderr());
    let unhealthy = in_image(dir.path(), &settings, None, &health[1..]).output().unwrap();
    assert!(!unhealthy.status.success(), "the health check succeeds without a process");
}
