import ast
import importlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import dp_erm_bench
from dp_erm_bench import code_identity
from dp_erm_bench.code_identity import (
    LEFT_OUT,
    code_digest,
    digest_of,
    modules_reached,
    parse_module,
)

ROOT = Path(dp_erm_bench.__file__).parent


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write files of a package and return the digests of modules of it."""
    monkeypatch.syspath_prepend(tmp_path)
    top = f"made_{tmp_path.name}"

    def digests(files, *roots):
        shutil.rmtree(tmp_path / top, ignore_errors=True)
        for name, text in {"__init__.py": "", **files}.items():
            path = tmp_path / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PKG", top), newline="")
        code_identity.file_of.cache_clear()
        importlib.invalidate_caches()
        return [code_digest([f"{top}.{root}"]) for root in roots or ("a",)]

    return digests


A = """
from PKG.b import helper as other, SCALE
import numpy as np

OFFSET = 3.0


def main(x, y=1):
    '''Docstring.'''
    return other(x)[1:] * SCALE + OFFSET + np.exp(x) + y
"""
B = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from PKG.unused import Nothing
SCALE = 2.0


def helper(x):
    # A comment.
    from PKG.c import inner
    return inner(x)
"""
C = """
def inner(x):
    return x + 1
"""
FILES = {"a.py": A, "b.py": B, "c.py": C, "unused.py": "X = 1\n"}
SAME = {
    "a comment": {"b.py": B.replace("# A comment.", "# Another one, with é.")},
    "no comment": {"b.py": B.replace("    # A comment.\n", "")},
    "a docstring": {"a.py": A.replace("Docstring.", "Other\n\n    words.")},
    "no docstring": {"a.py": A.replace("    '''Docstring.'''\n", "")},
    "another layout": {
        "a.py": A.replace("SCALE + OFFSET + ", "SCALE  +  OFFSET   +   ")
        .replace("np.exp(x)", "np.exp(\n        x,\n    )")
        .replace("\n\n\n", "\n\n\n\n\n")
    },
    "other quotes": {"a.py": A.replace("'''", '"""')},
    "indentation": {"b.py": B.replace("\n    ", "\n  ")},
    "ends of lines": {"a.py": A.replace("\n", "\r\n")},
    "what is not imported": {"unused.py": "X = 2\n"},
    "what is there for types": {"unused.py": "from PKG.gone import Y\n"},
    "a new module": {"more.py": "import os\n"},
}
OTHER = {
    "a constant": {"b.py": B.replace("SCALE = 2.0", "SCALE = 2.5")},
    "the type of a constant": {"b.py": B.replace("SCALE = 2.0", "SCALE = 2")},
    "a default": {"a.py": A.replace("y=1", "y=2")},
    "a sign": {"a.py": A.replace("+ OFFSET", "- OFFSET")},
    "a slice's end": {"a.py": A.replace("[1:]", "[:1]")},
    "a helper two imports away": {"c.py": C.replace("x + 1", "x + 2")},
    "an operator": {"a.py": A.replace("* SCALE", "/ SCALE")},
    "another library's function": {"a.py": A.replace("numpy as np", "math as np")},
    "another helper": {"a.py": A.replace("helper as other", "SCALE as other")},
    "a decorator": {"c.py": C.replace("def", "@staticmethod\ndef", 1)},
    "structure alone": {
        "c.py": C.replace("    return", "    if x:\n        x += 1\n    return"),
    },
    "the order of bindings": {"b.py": B + "SCALE = 3.0\nSCALE = 4.0\n"},
    "an act of its package": {"__init__.py": "import os\nos.environ['A'] = '1'\n"},
    "an empty text": {"b.py": B.replace("SCALE = 2.0", "SCALE = ''")},
    "a zero": {"b.py": B.replace("SCALE = 2.0", "SCALE = 0")},
}


@pytest.mark.parametrize("change", SAME)
def test_a_digest_does_not_see(package, change):
    assert FILES | SAME[change] != FILES
    assert package(FILES) == package({**FILES, **SAME[change]})


@pytest.mark.parametrize("change", OTHER)
def test_a_digest_sees(package, change):
    assert FILES | OTHER[change] != FILES
    assert package(FILES) != package({**FILES, **OTHER[change]})


def test_small_values_are_told_apart(package):
    values = ("0", "0.0", "-0.0", "False", "''", "b''", "None", "()", "[]", "{}", "...")
    made = [package({"a.py": f"X = {value}\n"})[0] for value in values]
    assert len({*made}) == len(values)


IMPORTED = {
    "a name": "from PKG.c import inner\n",
    "a module": "from PKG import c\n",
    "with dots": "import PKG.c\n",
    "relative": "from .c import inner\n",
    "all": "from PKG.c import *\n",
    "one of two": (
        "try:\n    from PKG.c import inner\nexcept ImportError:\n    inner = 0\n"
    ),
    "in a function": "def main():\n    from . import c\n    return c\n",
    "by its name": "import importlib\nc = importlib.import_module('PKG.c')\n",
    "not for types": (
        "import typing\nif not typing.TYPE_CHECKING:\n    from PKG.c import inner\n"
    ),
    "else for types": (
        "import typing\nif typing.TYPE_CHECKING:\n    inner = 0\n"
        "else:\n    from PKG.c import inner\n"
    ),
    "through another": "from PKG.b import helper\n",
    "by a package": "import PKG.below\n",
    "below": "from PKG.below.deep import inner\n",
}


@pytest.mark.parametrize("how", IMPORTED)
def test_what_is_imported_is_reached(package, how):
    below = {"below/__init__.py": "from ..c import inner\n"}
    below["below/deep.py"] = "from . import inner\n"
    files = {**FILES, **below, "a.py": IMPORTED[how]}
    assert package(files) != package({**files, "c.py": C.replace("+ 1", "+ 2")})


def test_modules_that_import_each_other_have_digests_of_their_own(package):
    files = {"a.py": "from PKG import b\nX = 1\n", "b.py": "from PKG import a\n"}
    assert package(files, "a") == package(files, "b")  # they reach the same
    other = {**files, "b.py": "from PKG import a\nY = 1\n"}
    assert {*package(files, "a", "b")}.isdisjoint(package(other, "a", "b"))


def test_what_no_file_holds_is_refused(package):
    with pytest.raises(LookupError, match="no file holds made_"):
        package(FILES, "absent")

    def local():
        return 1

    with pytest.raises(LookupError):
        digest_of(local)


def test_what_the_package_holds_is_cached_and_damage_costs_time(monkeypatch, tmp_path):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    modules = code_identity._modules_in_digests.__wrapped__
    before = modules()
    (kept,) = tmp_path.rglob("*.json")
    whole = kept.read_bytes()
    for text in (whole[:-1], whole.replace(b"kernels", b"kernelz")):
        kept.write_bytes(text)
        assert modules() == before and kept.read_bytes() == whole
    monkeypatch.setattr(code_identity, "parse_module", lambda *a: pytest.fail("parsed"))
    assert modules() == before == code_identity._modules_in_digests()


def digest(module, **edited):
    """The digest of a module of the package where files have other texts."""
    return code_digest([f"dp_erm_bench.{module}"], edited)


def edited(tmp_path, file, old, new):
    text = (ROOT / file).read_text()
    assert old in text
    path = tmp_path / Path(file).name
    path.write_text(text.replace(old, new, 1))
    module = "dp_erm_bench." + ".".join(Path(file).with_suffix("").parts)
    return {module: path}


EXECUTE, RANDOM_CD, L2 = "runner.execute", "solvers.random_cd", "penalties.separable"
EDITS = {
    # A file, an edit of it, and which roots it changes.
    "an unused norm": (
        ("norms/groups.py", "return", "return 2 *"),
        {"norms.groups"},
    ),
    "the registry": (("registry.py", 'SUFFIX = ".yaml"', 'SUFFIX = ".yml"'), set()),
    "facts of a record": (
        ("runner/execute.py", '"z": calibration.z,', '"z": 2.0 * calibration.z,'),
        {EXECUTE},
    ),
    "when a trial is lost": (
        ("runner/execute.py", "if not rows.finite[b]", "if rows.finite[b]"),
        {EXECUTE},
    ),
    "another solver": (("solvers/sgd.py", "return", "return 2 *"), set()),
    "a helper of kernels": (
        ("kernels/elementary.py", "1.0 / 6227020800.0", "1.5 / 6227020800.0"),
        {EXECUTE, RANDOM_CD, "norms.groups"},
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_of_the_package_changes_the_digests_of_who_imports_it(tmp_path, what):
    edit, moved = EDITS[what]
    file = edited(tmp_path, *edit)
    for module in {EXECUTE, RANDOM_CD, L2, "norms.groups"}:
        assert (digest(module, **file) != digest(module)) == (module in moved), module


def test_names_of_extend_are_those_of_their_modules(tmp_path):
    (tmp_path / "mine.py").write_text("from dp_erm_bench.extend import Gaussian\n")
    found = modules_reached(["mine"], {"mine": tmp_path / "mine.py"})
    assert "dp_erm_bench.releases.gaussian" in found
    assert not {"dp_erm_bench.extend", "dp_erm_bench.releases.noisy_max"} & {*found}


def test_what_schedules_keeps_and_shows_is_in_no_digest():
    for module, reason in LEFT_OUT.items():
        assert code_identity.file_of(module) and reason
    names = {*modules_reached([f"dp_erm_bench.{EXECUTE}"])}
    parts = {name.split(".")[1] for name in names}
    assert not parts & {"report", "results", "cli", "contract", "experiment"}
    assert {name for name in names if ".runner" in name} == {
        "dp_erm_bench.runner",
        "dp_erm_bench.runner.execute",
    }


def test_no_comment_of_the_package_is_in_a_digest(tmp_path):
    """Every file, written anew from its syntax tree, has the same digest."""
    files = {}
    for name in modules_reached(
        [f"dp_erm_bench.{root}" for root in (EXECUTE, RANDOM_CD, L2)]
    ):
        path = code_identity.file_of(name)
        files[name] = bare = tmp_path / name / path.name
        bare.parent.mkdir()
        bare.write_text(f"# A comment.\n{ast.unparse(ast.parse(path.read_text()))}\n")
    for root in (EXECUTE, RANDOM_CD, L2):
        assert digest(root, **files) == digest(root), root


def test_digests_of_objects_are_those_of_their_modules():
    from dp_erm_bench.losses.smooth import Logistic

    assert digest_of(Logistic) == digest("losses.smooth")


TRICKY = '''
# é
_X, y = 1, f"é{_X!r:>{_X}}" "and" rf"\\d{{{y}}}" f"" f"{y}{_X}"
async def _run(*, a: int = _X, **kw) -> "str":
    """Docstring, é."""
    return f"""é
    {[i for i in range(a) if (j := i)]}
    """
class Own(Base, key=_X):
    "Docstring."
    field: int = y

    @property
    def both(self): return self.field, y ; _run
def chosen(x):
    match x:
        case {"a": [first, *rest], **more}: return first, rest, more
        case Own(field=z) | z: return z
    try: x = lambda q=y: (q, x)
    except* ValueError as error: del error
'''
PROGRAM = """
import json, sys
from dp_erm_bench.code_identity import parse_module
texts = json.load(sys.stdin)
made = [parse_module(text.encode(), "dp_erm_bench.a.b") for text in texts]
print(json.dumps([(one.digest, sorted(one.names)) for one in made]))
"""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_another_version_of_python_gives_the_same_digests(version, tmp_path):
    known = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python3"))
    python = str(known[0]) if known else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"not run: there is no Python {version} here")
    files = [
        path
        for part in ("kernels", "solvers", "runner")
        for path in (ROOT / part).glob("*.py")
    ]
    texts = [TRICKY, *(path.read_text() for path in files)]
    done = subprocess.run(
        [python, "-c", PROGRAM],
        input=json.dumps(texts),
        cwd=ROOT.parent,
        env={"DP_ERM_BENCH_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    here = [parse_module(text.encode(), "dp_erm_bench.a.b") for text in texts]
    assert json.loads(done.stdout) == [[o.digest, sorted(o.names)] for o in here]


def test_what_judges_a_paper_is_in_no_key_and_what_a_trial_computes_is():
    reached = modules_reached(["dp_erm_bench.runner.tasks"])
    papers = {one.rpartition(".")[2] for one in reached if ".papers" in one}
    assert papers == {"papers", "instances"}
