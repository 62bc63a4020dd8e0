"""Adds the command `ichido` to the wheel of the Python library.

    python3 packages/python-binary/wheels.py LIBRARY_WHEEL DIRECTORY [PROGRAM]...

writes into DIRECTORY, and prints, one wheel for each program, and one for all other platforms:

- A wheel with a program has a platform tag and contains the program as the script `ichido`, so that `uvx ichido demo` runs it directly.
- The wheel for all other platforms has the command too. There, it says that no program is available.

Installers prefer the wheel with the narrower tag. All of them contain the library, so `import ichido` works everywhere.
"""

import base64
import hashlib
import pathlib
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).parent
# e_machine in the ELF header.
ARCHITECTURES = {62: "x86_64", 183: "aarch64"}


def platform_tag(program):
    """The tag of a program for Linux: the newest symbol version that it needs is the oldest glibc that it runs on."""
    if program[:4] != b"\x7fELF":
        sys.exit("wheels.py: the program is not an ELF file")
    machine = int.from_bytes(program[18:20], "little")
    versions = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=\0)", program)]
    if machine not in ARCHITECTURES or not versions:
        sys.exit(f"wheels.py: no tag is known for this program (machine {machine}, glibc {versions})")
    return f"manylinux_2_{max(versions)}_{ARCHITECTURES[machine]}"


def write(path, files):
    """Writes a wheel. The same files give the same bytes."""
    info = next(name for name in files if name.endswith(".dist-info/WHEEL")).removesuffix("WHEEL")
    record = info + "RECORD"
    files.pop(record, None)
    lines = [f"{record},,\n"]
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.insert(-1, f"{name},sha256={digest},{len(data)}\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in {**files, record: "".join(lines).encode()}.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, data)
    print(path)


def main():
    library, directory, programs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    with zipfile.ZipFile(library) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    release = library.name.removesuffix("-py3-none-any.whl")
    if release == library.name:
        sys.exit(f"wheels.py: {library.name} is not a wheel for all platforms")
    info = f"{release}.dist-info"
    if f"{info}/entry_points.txt" in files:
        sys.exit(f"wheels.py: {library.name} has entry points; the command would be overwritten")
    for path in programs:
        program = pathlib.Path(path).read_bytes()
        tag = platform_tag(program)
        settings = files[f"{info}/WHEEL"].decode()
        settings = settings.replace("Tag: py3-none-any", f"Tag: py3-none-{tag}")
        settings = settings.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        changed = {f"{release}.data/scripts/ichido": program, f"{info}/WHEEL": settings.encode()}
        write(directory / f"{release}-py3-none-{tag}.whl", {**files, **changed})
    command = {
        "ichido/_command.py": (HERE / "_command.py").read_bytes(),
        f"{info}/entry_points.txt": b"[console_scripts]\nichido = ichido._command:main\n",
    }
    write(directory / library.name, {**files, **command})


main()
