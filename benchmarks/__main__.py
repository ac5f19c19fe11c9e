"""Run the benchmarks of `make bench` and print one table each, in markdown."""

import argparse
import os
import platform

from benchmarks import batches, constants, harness, rates, scale

BENCHES = {
    "harness": harness.run,
    "constants": constants.run,
    "batches": batches.run,
    "rates": rates.run,
    "scale": scale.run,
}
USUAL = ["harness", "constants", "batches"]


def main() -> None:
    """Run the chosen benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=USUAL, metavar="NAME")
    parser.add_argument(
        "--benchopt",
        metavar="COMMAND",
        help="measure benchopt too; `install`: one that pip gets for this run only",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")
    given = parser.parse_args()
    for name in given.names:
        if name not in BENCHES:
            parser.error(f"{name}: must be one of {', '.join(BENCHES)}")
    print(f"{machine()}\n")
    for name in given.names:
        BENCHES[name](given)


def machine() -> str:
    """Return a description of the machine, with its current load."""
    load, version = os.getloadavg()[0], platform.python_version()
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"load {load:.1f}, Python {version}"
    )


if __name__ == "__main__":
    main()
