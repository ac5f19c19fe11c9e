"""The files that the slow tests depend on, and whether any has changed.

`python tests/slow.py` prints a digest of every file that `make test-slow` depends on.
`python tests/slow.py FILE` names the files whose digest differs from FILE, and fails if
there are any.
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("dp_erm_bench", "conf", "experiments", "notebooks", "benchmarks", "tests")
FILES = ("pyproject.toml", "requirements.lock", "requirements-oldest.lock", "Makefile")
LEFT_OUT = (".pyc", ".csv", ".digest")


def covered() -> Iterator[Path]:
    """Yield the files: all of the package, and of the tests what slow ones use."""
    yield from (ROOT / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = any(part.startswith(".") for part in path.parts[len(ROOT.parts) :])
            if hidden or not path.is_file() or path.suffix in LEFT_OUT:
                continue
            # A fast test is nobody else's.
            test = folder == "tests" and path.name.startswith("test_")
            if not test or "mark.slow" in path.read_text():
                yield path


def all_slow(path: Path) -> bool:
    """Return whether a file of tests has none that is fast."""
    return "\npytestmark = pytest.mark.slow" in path.read_text()


def digests() -> dict[str, str]:
    """Return the digest of each file by its name."""
    return {
        path.relative_to(ROOT).as_posix(): digest(path.read_bytes())
        for path in covered()
    }


def digest(content: bytes) -> str:
    """Return so much of the SHA-256 as tells changes apart: nobody forges these."""
    return hashlib.sha256(content).hexdigest()[:16]


def changed(recorded: str) -> list[str]:
    """Return the names of the files that are new, gone or other than recorded."""
    before = {name: digest for digest, name in map(str.split, recorded.splitlines())}
    now = digests()
    return sorted(n for n in {**before, **now} if before.get(n) != now.get(n))


def main(path: str = "") -> int:
    """Print what is asked for; return the exit code."""
    if not path:
        print("\n".join(f"{digest} {name}" for name, digest in digests().items()))
        return 0
    recorded = Path(path).read_text() if Path(path).is_file() else ""
    names = changed(recorded)
    if names:
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        print(f"changed since the slow tests passed: {', '.join(names[:20])}{more}")
    return int(bool(names))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
