"""Where a results folder is from: its experiment, command, machine and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import printable
from dp_erm_bench.report.html.parts import mapping


def words_of(value: Any) -> str:
    """Return a value of a manifest, or a list of them, as one line."""
    parts = value if isinstance(value, list) else [value]
    return printable(" ".join(map(str, parts)), 1000)


def facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a manifest says of its run: machine, commit and versions."""
    environment = mapping(manifest.get("environment"))
    git = mapping(environment.get("git"))
    commit = str(git.get("commit") or "")
    said = {
        "command": words_of(manifest.get("command") or ""),
        "profile": manifest.get("profile"),
        "started": manifest.get("started"),
        "ended": manifest.get("ended"),
        "outcome": manifest.get("outcome"),
        "machine": environment.get("cpu"),
        "cores": environment.get("cpus_usable"),
        "system": environment.get("platform"),
        "commit": commit and commit + " with changes" * bool(git.get("dirty")),
        "python": environment.get("python"),
        **mapping(environment.get("packages")),
    }
    for key, value in said.items():
        if value not in (None, ""):
            yield printable(str(key), 60), printable(str(value), 1000)


def about(manifest: Mapping[str, Any], folder: Path) -> str:
    """Return what the file of an experiment of the package says at its head."""
    named = [*mapping(manifest.get("experiment_file")), manifest.get("experiment")]
    stems = [Path(str(name)).stem for name in (*named, folder.name)]
    known = [name for name in stems if name in registry.built_in("experiment")]
    if not known:
        return ""
    path = registry.conf_dir() / "experiment" / f"{known[0]}.yaml"
    words = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("#"):
            break
        words.append(line.removeprefix("#").strip())
    return " ".join(words)
