#!/bin/sh
# Builds the image from a binary that exists already, without Docker and without a network (as root, with buildah):
#
#   deploy/image/build.sh BINARY SBOM_CRATES ARCHIVE
#
# SBOM_CRATES is the output of the `cargo tree` command in deploy/image/sbom.py. Load the archive with `docker load` or
# `podman load`. The last stage of the Dockerfile is used as it is, so both ways give the same image.
set -eu
binary=$1 crates=$2 archive=$3 here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/build"
"$here/rootfs.sh" "$binary" "$work/build/rootfs" > "$work/debian-packages"
python3 "$here/sbom.py" "$here/../../Cargo.lock" "$work/debian-packages" < "$crates" \
    > "$work/build/rootfs/usr/share/doc/ichido/sbom.cdx.json"

# A storage of its own leaves the machine's images alone. Health checks exist in Docker's format only.
set -- --storage-driver vfs --root "$work/storage" --runroot "$work/run"
buildah "$@" build --quiet --format docker --isolation chroot --build-context build="$work/build" \
    --timestamp "${SOURCE_DATE_EPOCH:-0}" --tag ichido --file "$here/../../Dockerfile" "$work/build" > "$work/id"
rm -f "$archive"
buildah "$@" push --quiet ichido "docker-archive:$archive:ichido:latest"
