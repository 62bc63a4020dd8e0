//! The Debian package.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{assert_settings_are_accepted, read, repository_path, run_ok};
use crate::refused;

/// Runs `/mnt/steps` as root on a copy-on-write view of this machine, with the directory `$1` as `/mnt`. What the steps
/// install is gone afterwards. Needs root.
const ON_A_COPY_OF_THIS_MACHINE: &str = r#"
set -eu
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changed /mnt/work /mnt/root /mnt/given
mount --bind "$1" /mnt/given
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changed,workdir=/mnt/work /mnt/root
mount --move /mnt/given /mnt/root/mnt
mount -t proc proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
# Without a running systemd, the maintainer scripts start and stop nothing.
mount -t tmpfs tmpfs /mnt/root/run
exec chroot /mnt/root sh -eux /mnt/steps
"#;

/// `new.deb` is the same package with a higher version.
const LIFE_OF_A_PACKAGE: &str = r#"
cd /
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
: The index of manual pages takes longer than all the rest.
rm -f /var/lib/man-db/auto-update
dpkg --install /mnt/ichido.deb
test "$(stat -c '%U %a' /var/lib/ichido)" = 'ichido 700'
systemd-analyze verify /lib/systemd/system/ichido.service
ichido --version
test -e /usr/share/man/man1/ichido-ledger-resolve.1.gz
runuser -u ichido -- ichido ledger list --ledger memory:

: An upgrade keeps the settings of the operator.
echo '# edited' >> /etc/ichido/ichido.toml
install -m 0600 /dev/null /etc/ichido/ichido.env
systemctl enable ichido
dpkg --install /mnt/new.deb
test "$(tail -n 1 /etc/ichido/ichido.toml)" = '# edited'
runuser -u ichido -- touch /var/lib/ichido/batch

: Removal keeps settings and data.
dpkg --remove ichido
test ! -e /usr/bin/ichido
test -e /etc/ichido/ichido.toml
test -e /etc/ichido/ichido.env

: Purging keeps data alone.
dpkg --purge ichido
test ! -e /etc/ichido
test ! -e /etc/systemd/system/multi-user.target.wants/ichido.service
test -e /var/lib/ichido/batch

: Without data, nothing is left.
rm /var/lib/ichido/batch
dpkg --install /mnt/ichido.deb
dpkg --purge ichido
test ! -e /var/lib/ichido
"#;

/// Builds the package of the binary under test.
fn build(dir: &Path) -> PathBuf {
    let mut build = Command::new(repository_path("deploy/debian/build.sh"));
    build.arg(env!("CARGO_BIN_EXE_ichido")).arg(dir);
    // The default compression takes longer than everything else.
    build.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    PathBuf::from(run_ok(&mut build, "").trim())
}

#[test]
fn debian_package_satisfies_lintian() {
    let dir = tempfile::tempdir().unwrap();
    let package = build(dir.path());
    run_ok(Command::new("lintian").args(["--allow-root", "--fail-on", "error,warning"]).arg(package), "");
}

#[test]
fn debian_package_is_installed_upgraded_removed_and_purged() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("ichido.deb");
    std::fs::rename(build(dir.path()), &package).unwrap();
    let unpacked = dir.path().join("unpacked");
    run_ok(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(&unpacked), "");
    let control = std::fs::read_to_string(unpacked.join("DEBIAN/control")).unwrap();
    let newer = control.replace("\nVersion: ", "\nVersion: 1:");
    assert_ne!(newer, control);
    std::fs::write(unpacked.join("DEBIAN/control"), newer).unwrap();
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Znone", "--build"]).arg(&unpacked).arg(dir.path().join("new.deb"));
    run_ok(&mut build, "");

    std::fs::write(dir.path().join("steps"), LIFE_OF_A_PACKAGE).unwrap();
    let mut steps = Command::new("unshare");
    steps.args(["--mount", "sh", "-c", ON_A_COPY_OF_THIS_MACHINE, "sh"]).arg(dir.path());
    run_ok(&mut steps, "");
}

/// As installed, the settings are comments only. Without them, they are settings.
#[test]
fn default_settings_are_comments_that_work() {
    let settings = read("deploy/debian/ichido.toml");
    assert!(settings.lines().all(|line| line.is_empty() || line.starts_with('#')), "{settings}");
    let is_setting = |line: &str| line.starts_with("#[") || (line.starts_with('#') && line.contains(" = "));
    let enabled: String = settings
        .lines()
        .filter(|line| is_setting(line))
        .map(|line| format!("{}\n", line.trim_start_matches('#')))
        .collect();
    assert!(enabled.contains("[gateway]\nupstream = "), "{enabled}");
    assert_settings_are_accepted(&enabled);

    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), settings).unwrap();
    assert!(refused(dir.path(), &["run"], 2).contains("is not set"));
}
