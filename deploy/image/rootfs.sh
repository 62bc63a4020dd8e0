#!/bin/sh
# Assembles the root file system of the image: the binary, the libraries it loads, CA certificates and its user. There is
# no shell and no package manager in it, so little needs patching.
#
#   deploy/image/rootfs.sh BINARY ROOTFS > debian-packages
#
# Run it as root on Debian, because the libraries come from this machine. It prints the Debian packages that the files
# come from, for the SBOM.
set -eu
binary=$1 root=$2 repository=$(dirname "$0")/../..

install -D -m 0755 "$binary" "$root/usr/bin/ichido"
libraries=$(ldd "$binary" | grep -o '/[^ ]*')
for file in $libraries /etc/ssl/certs/ca-certificates.crt; do
    # Debian's library paths are links; the loader expects a file under the name it was given.
    install -D -m 0755 "$file" "$root$file"
done
chmod 0644 "$root/etc/ssl/certs/ca-certificates.crt"

echo 'ichido:x:10001:10001::/var/lib/ichido:/usr/sbin/nologin' > "$root/etc/passwd"
echo 'ichido:x:10001:' > "$root/etc/group"
# Without this file glibc asks DNS before /etc/hosts.
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
install -d -m 1777 "$root/tmp"
install -d -m 0700 -o 10001 -g 10001 "$root/var/lib/ichido"
install -D -m 0644 -t "$root/usr/share/doc/ichido" "$repository/LICENSE-APACHE" "$repository/LICENSE-MIT"

# A package owns a library as /lib/… or as /usr/lib/…, depending on the Debian release.
packages=$(for file in $libraries; do dpkg-query -S "$file" "/usr$file" 2>/dev/null || true; done | cut -d : -f 1 | sort -u)
dpkg-query -W -f '${Package} ${Version} ${Architecture}\n' $packages ca-certificates
