"""Test that everything that a message tells a user to type exists."""

import ast
import dataclasses
import functools
import inspect
import re
from pathlib import Path

from dp_erm_bench import extend, registry
from dp_erm_bench.cli.main import main
from dp_erm_bench.cli.options import INSTEAD, OPTIONS, parser_of
from dp_erm_bench.cli.usage import COMMANDS, GROUPS, HELP
from dp_erm_bench.datasets.prepare import KEYS
from dp_erm_bench.experiment.schema import TUNING, frame_keys
from dp_erm_bench.registry import PARTS

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ("runner/engines/cluster.py", "results/runs.py", "cli/completion.py")
"""Files whose options are those of sbatch, git and the shells."""

BOTH = ("report/view.py", ["plot", "export"])
"""A file whose messages are of two commands, each of which has its options."""

SWEEP = "dataset=log1"


@functools.cache
def messages():
    """Return the texts of the package but its docstrings: file, line, words.

    A value that is put into a text is {}.
    """
    found = []
    for path in sorted((ROOT / "dp_erm_bench").rglob("*.py")):
        name, skipped = path.relative_to(ROOT / "dp_erm_bench").as_posix(), set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Expr):
                skipped.add(node.value)
            if isinstance(node, ast.JoinedStr):
                skipped |= {*node.values}
                parts = [getattr(one, "value", "") for one in node.values]
                words = [one if isinstance(one, str) else "{}" for one in parts]
                found.append((name, node.lineno, "".join(words)))
            if isinstance(node, ast.FormattedValue):
                skipped |= {*ast.walk(node)} - {node}
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node not in skipped and (" " in node.value or "=" in node.value):
                    found.append((name, node.lineno, node.value))
    assert len(found) > 1000
    return found


def named(pattern):
    """Return what a pattern finds in messages: file and line by what is named."""
    found = {}
    for name, line, words in messages():
        for one in re.findall(pattern, words):
            found.setdefault(one, []).append((name, line))
    return found


def answer(capsys, *arguments):
    """Return what a refused command line says."""
    assert main([*arguments]) == 2, arguments
    return capsys.readouterr().err


OPTION = r"(?<![\w-])--[a-z]+(?:-[a-z]+)*"
FLAGS = {"--cfg", "--config-dir", "--config-name", "--multirun", "--package"}
HIDDEN = {SWEEP: {*FLAGS, "--resolve"}}
"""Options that the help of a command does not name."""


def test_every_option_that_a_message_names_is_taken(here, capsys):
    """`plot` said to name a column in `by`, which only Python has."""
    offered = {one: {*re.findall(OPTION, HELP[one])} for one in COMMANDS}
    for command, options in HIDDEN.items():
        offered[command] = offered.get(command, set()) | options
    for command, options in offered.items():
        if command in OPTIONS:
            actions = parser_of(command)._actions
            taken = {name for one in actions for name in one.option_strings}
            assert options - {"--help", "--version"} <= taken, command
            continue
        unknown = answer(capsys, command, "gone", "--gone", "1")
        for one in options - {"--help", "--version"}:
            told = answer(capsys, command, "gone", one, "1")
            assert told.replace(one, "--gone") != unknown, f"{command} {one}"
    refused = {*INSTEAD, "--version"}
    for option, places in named(OPTION).items():
        takers = {one for one, options in offered.items() if option in options}
        for name, line in places:
            known = takers >= {*BOTH[1]} if name == BOTH[0] else takers
            where = f"{name}:{line}: {option}"
            assert known or name in OTHERS or option in refused, where


SECTIONS = "|".join((*(one for one in GROUPS if one != "problem"), "budget", "tune"))
KEY = rf"(?<![\w.}}{{/(-])((?:{SECTIONS}|task)(?:\.[a-z]\w*)+)"


def parameters(group):
    """Return the keys of a group's choices, with the words that each may be."""
    found = {}
    for name in registry.built_in(group):
        found |= {key: set() for key in registry.read_choice(group, name)}
        made = registry.read_choice(group, name).get("_target_") and registry.target(
            group, name
        )
        if dataclasses.is_dataclass(made):
            for field in dataclasses.fields(made):
                words = {*field.metadata.get("choices", ())}
                found[field.name] = found.get(field.name, set()) | words
        elif made:
            found |= {key: set() for key in inspect.signature(made).parameters}
    return found


def test_every_key_that_a_message_names_exists(here, capsys):
    known = {*frame_keys(), *(f"dataset.bounds.{one}" for one in KEYS)}
    known |= {f"task.{key}" for key in parameters("task")}
    for section, schema in TUNING.items():
        known |= {f"{section}.{one.name}" for one in dataclasses.fields(schema)}
    for group in PARTS:
        known |= {f"{group}.{key}" for key in parameters(group)}
    told = answer(capsys, SWEEP, "algorithm=gd", "dataset.gone=1", "mode=plan")
    known |= {f"dataset.{one}" for one in told.partition("one of ")[2].split(", ")}
    for key, places in named(KEY).items():
        assert key in known, (key, places)


ASSIGNED = r"(?<![\w.}{/-])([a-z]\w*(?:\.\w+)*)=([A-Za-z][\w-]*)"
OF_ANY = (
    "True",
    "False",
    "true",
    "false",
    "auto",
    "full",
    "NAME",
    "PATH",
    "FILE",
    "path",
)
"""Values that are no choice of a key's own, and words that stand for one."""


def choices():
    """Return the words that each key may be, of all parts that have it."""
    found = {group: {*registry.names(group)} for group in GROUPS}
    for group in (*PARTS, "algorithm"):
        for key, words in parameters(group).items():
            found[key] = found.get(key, set()) | words
    return found


def test_every_value_that_a_message_names_is_a_choice():
    """`calibration=certified`, `noise=gumbel`: of every key that has choices."""
    allowed, looked = choices(), 0
    for (key, value), places in named(ASSIGNED).items():
        words = allowed.get(key.rpartition(".")[2])
        looked += bool(words)
        assert not words or value in {*words, *OF_ANY}, (key, value, places)
    assert looked > 20


def test_what_a_message_says_to_use_is_there():
    """`use frank_wolfe or gd`, docs/clusters.md, `dp-erm-bench collect`."""
    allowed = choices()
    known = {*allowed, *(word for words in allowed.values() for word in words)}
    known |= {name for one in vars(extend).values() for name in (*dir(one),)}
    known |= {*vars(extend)}
    words = [one for _, _, one in messages() if re.search(r"\buse\b", one)]
    used = {one for text in words for one in re.findall(r"\b[a-z]\w*_\w+\b", text)}
    assert len(used) > 5 and used <= known, used - known
    for page, places in named(r"\bdocs/\w+\.md").items():
        assert (ROOT / page).is_file(), (page, places)
    for command, places in named(r"\bdp-erm-bench ([a-z]\w+)(?![\w.=])").items():
        assert command in COMMANDS, (command, places)
