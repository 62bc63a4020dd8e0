#!/bin/sh
# Builds the Debian package of a binary, with dpkg-deb alone:
#
#   deploy/debian/build.sh BINARY DIRECTORY     writes DIRECTORY/ichido_VERSION_ARCHITECTURE.deb and prints its path
#
# The version is the binary's. SOURCE_DATE_EPOCH sets all times (default: the binary's), so that a build can be repeated.
# cargo-deb would compile a few hundred crates for the same result.
set -eu
binary=$1 target=$2
here=$(cd "$(dirname "$0")" && pwd) repository=$here/../..
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(stat -c %Y "$binary")}"
version=$("$binary" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
root=$stage/root doc=$stage/root/usr/share/doc/ichido

install -D -m 0755 "$binary" "$root/usr/bin/ichido"
strip --remove-section=.comment --remove-section=.note "$root/usr/bin/ichido"
"$root/usr/bin/ichido" man "$root/usr/share/man/man1"
for shell in bash/bash-completion/completions/ichido zsh/zsh/vendor-completions/_ichido \
    fish/fish/vendor_completions.d/ichido.fish; do
    file=$root/usr/share/${shell#*/}
    mkdir -p "$(dirname "$file")"
    "$root/usr/bin/ichido" completions "${shell%%/*}" > "$file"
done
install -D -m 0644 "$here/ichido.toml" "$root/etc/ichido/ichido.toml"
install -D -m 0644 "$here/ichido.sysusers" "$root/usr/lib/sysusers.d/ichido.conf"
# A user with a fixed name, so that an operator can run `sudo -u ichido ichido spool list`.
mkdir -p "$root/lib/systemd/system"
sed -e 's|/usr/local/bin/|/usr/bin/|' -e 's|^DynamicUser=yes$|User=ichido|' -e '/^# Runs ichido under/,/^# \/etc/d' \
    "$repository/deploy/systemd/ichido.service" > "$root/lib/systemd/system/ichido.service"
install -D -m 0644 "$here/copyright" "$doc/copyright"
install -m 0644 "$repository/CHANGELOG.md" "$doc/NEWS.md"
printf 'ichido (%s) unstable; urgency=medium\n\n  * Release %s; NEWS.md.gz lists the changes.\n\n -- %s  %s\n' "$version" "$version" \
    "$(sed -n 's/^Maintainer: //p' "$here/control")" "$(date -uR -d "@$SOURCE_DATE_EPOCH")" > "$doc/changelog"
gzip -9n "$doc/changelog" "$doc/NEWS.md" "$root"/usr/share/man/man1/*

mkdir "$root/DEBIAN"
# The newest symbol version that the binary needs is the oldest glibc that it runs on.
glibc=$(objdump -T "$root/usr/bin/ichido" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | cut -d _ -f 2)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@GLIBC@/$glibc/" \
    -e "s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f 1)/" "$here/control" > "$root/DEBIAN/control"
echo /etc/ichido/ichido.toml > "$root/DEBIAN/conffiles"
install -m 0755 -t "$root/DEBIAN" "$here/postinst" "$here/prerm" "$here/postrm"
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

package=$target/ichido_${version}_$architecture.deb
mkdir -p "$target"
dpkg-deb --root-owner-group --build "$root" "$package" > "$stage/log"
echo "$package"
