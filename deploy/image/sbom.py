"""Prints a CycloneDX 1.6 SBOM of the binary: the crates that are linked into it, and the Debian packages beside it.

    cargo tree --locked --package ichido --edges normal,no-proc-macro --prefix none --format '{p}|{l}' |
        python3 deploy/image/sbom.py Cargo.lock [DEBIAN_PACKAGES] > sbom.cdx.json

`cargo tree` resolves features and platform, so crates that only tests, build scripts or other platforms use are left
out; Cargo.lock alone would list them too. The same input gives the same bytes: there is no timestamp and no random id.
"""

import json
import re
import sys
import tomllib

LINE = re.compile(r"(?P<name>\S+) v(?P<version>\S+)(?: \([^)]*\))?\|(?P<license>.*)")


def crate(line, checksums):
    # cargo marks a repeated line.
    match = LINE.fullmatch(line.strip().removesuffix(" (*)"))
    if not match:
        sys.exit(f"sbom.py: not a line of cargo tree: {line.strip()!r}")
    name, version = match["name"], match["version"]
    purl = f"pkg:cargo/{name}@{version.replace('+', '%2B')}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if match["license"]:
        # Old crates write a slash for OR, which SPDX does not allow.
        component["licenses"] = [{"expression": match["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return component


def debian_package(line):
    name, version, architecture = line.split()
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main():
    with open(sys.argv[1], "rb") as lock:
        packages = tomllib.load(lock)["package"]
    checksums = {(one["name"], one["version"]): one.get("checksum") for one in packages}
    # A crate that several others use appears several times.
    crates = {one["bom-ref"]: one for one in (crate(line, checksums) for line in sys.stdin if line.strip())}
    binary = next((one for one in crates.values() if one["name"] == "ichido"), None)
    if binary is None:
        sys.exit("sbom.py: no crate is called ichido; pipe the cargo tree command of this file's header into it")
    del crates[binary["bom-ref"]]
    components = [crates[ref] for ref in sorted(crates)]
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as lines:
            components += [debian_package(line) for line in lines]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": binary | {"type": "application"}},
        "components": components,
    }
    json.dump(bom, sys.stdout, indent=1)
    print()


main()
