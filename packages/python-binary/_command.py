"""The command `ichido` where no wheel with the program is available: says what to do instead."""

import platform
import sys


def main() -> None:
    sys.exit(
        f"ichido: there is no program for {platform.system()} on {platform.machine()} in this wheel; "
        "build it with: cargo install --locked ichido"
    )
