import ast
import importlib
import itertools
import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import dp_erm_bench
from dp_erm_bench import definitions
from dp_erm_bench.definitions import Sources, digest_of, summary

ROOT = Path(dp_erm_bench.__file__).parent


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write files of a package and return its digests."""
    monkeypatch.syspath_prepend(tmp_path)
    top = f"made_{tmp_path.name}"

    def digests(files, *wanted):
        shutil.rmtree(tmp_path / top, ignore_errors=True)
        for name, text in {"__init__.py": "", **files}.items():
            path = tmp_path / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PKG", top), newline="")
        for remembered in (
            definitions.file_of,
            definitions._python,
            definitions._folders,
        ):
            remembered.cache_clear()
        importlib.invalidate_caches()
        sources = Sources([top])
        roots = wanted or ("a.main",)
        return [
            sources.digest(f"{top}.{root.rpartition('.')[0]}", root.rpartition(".")[2])
            for root in roots
        ]

    return digests


A = """
from PKG.b import helper as other, SCALE
import numpy as np

_OFFSET = 3.0


def main(x):
    '''Docstring.'''
    return other(x) * SCALE + _OFFSET + np.exp(x)
"""
B = """
SCALE = 2.0
UNUSED = 5


def helper(x):
    # A comment.
    if x > 0:
        x = _inner(x)
    return x


def _inner(x):
    return x + 1


def unused(x):
    return x
"""
SAME = {
    "a comment": {"b.py": B.replace("# A comment.", "# Another one, with é.")},
    "no comment": {"b.py": B.replace("    # A comment.\n", "")},
    "a docstring": {"a.py": A.replace("Docstring.", "Other\n\n    words.")},
    "no docstring": {"a.py": A.replace("    '''Docstring.'''\n", "")},
    "blanks and breaks": {
        "a.py": A.replace("SCALE + _OFFSET + ", "SCALE  +  _OFFSET   +   ")
        .replace("np.exp(x)", "np.exp(\n        x\n    )")
        .replace("\n\n\n", "\n\n\n\n\n")
    },
    "indentation": {"b.py": B.replace("\n    ", "\n  ").replace("\n      ", "\n   ")},
    "what is not used": {"b.py": B.replace("UNUSED = 5", "UNUSED = 6")},
    "an unused function": {
        "b.py": B.replace("    return x\n\n\ndef _", "    return x\n\n\ndef _")
        + "\n\ndef more():\n    return 1\n"
    },
    "a private name": {
        "b.py": B.replace("_inner", "_within"),
        "a.py": A.replace("_OFFSET", "_SHIFT"),
    },
    "an alias": {"a.py": A.replace("as other", "as it").replace("other(x)", "it(x)")},
    "another order": {"b.py": "\n\n".join(reversed(B.split("\n\n\n")))},
    "a renamed file": {"b.py": "", "c.py": B, "a.py": A.replace("PKG.b", "PKG.c")},
    "a merged file": {
        "b.py": "",
        "a.py": A.replace("from PKG.b import helper as other, SCALE", "").replace(
            "other(", "helper("
        )
        + B,
    },
    "a moved function": {
        "c.py": "def _inner(x):\n    return x + 1\n",
        "b.py": "from PKG.c import _inner\n"
        + B.replace("def _inner(x):\n    return x + 1\n", ""),
    },
    "a relative import": {"a.py": A.replace("from PKG.b", "from .b")},
    "a module's attribute": {
        "a.py": A.replace(
            "from PKG.b import helper as other, SCALE", "from PKG import b"
        )
        .replace("other(x)", "b.helper(x)")
        .replace("* SCALE", "* b.SCALE"),
    },
    "an import within": {
        "a.py": A.replace(
            "from PKG.b import helper as other, SCALE", "from PKG.b import SCALE"
        ).replace(
            "    return other",
            "    from PKG.b import helper as other\n    return other",
        ),
    },
    "through another module": {
        "c.py": "from PKG.b import *\n",
        "a.py": A.replace("PKG.b", "PKG.c"),
    },
    "for types only": {
        "a.py": A.replace(
            "import numpy",
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from PKG.b import unused\nimport numpy",
        )
    },
}
OTHER = {
    "a constant that is used": {"b.py": B.replace("SCALE = 2.0", "SCALE = 2.5")},
    "a private constant": {"a.py": A.replace("3.0", "3.5")},
    "a helper's helper": {"b.py": B.replace("x + 1", "x + 2")},
    "structure alone": {
        "b.py": B.replace("    return x\n\n\ndef _", "        return x\n\n\ndef _")
    },
    "another library's function": {
        "a.py": A.replace("import numpy as np", "import math as np")
    },
    "a comma": {"a.py": A.replace("np.exp(x)", "np.exp(x,)")},
    "an operator": {"b.py": B.replace("x > 0", "x >= 0")},
    "functions exchanged": {"a.py": A.replace("helper as other", "unused as other")},
    "a default": {"b.py": B.replace("def _inner(x):", "def _inner(x, y=0):")},
    "a decorator": {"b.py": B.replace("def _inner", "@staticmethod\ndef _inner")},
    "a constant bound again": {"b.py": B + "\nSCALE *= 2\n"},
    "an act of its module": {"a.py": A + "\nnp.seterr(all='raise')\n"},
    "an act of a module that it imports": {
        "b.py": "import os\nos.environ['A'] = '1'\n" + B
    },
    "an act of its package": {"__init__.py": "import os\nos.environ['A'] = '1'\n"},
}


@pytest.mark.parametrize("change", SAME)
def test_a_digest_does_not_see(package, change):
    before = {"a.py": A, "b.py": B}
    assert before | SAME[change] != before
    assert package(before) == package({**before, **SAME[change]})


@pytest.mark.parametrize("change", OTHER)
def test_a_digest_sees(package, change):
    before = {"a.py": A, "b.py": B}
    assert package(before) != package({**before, **OTHER[change]})


REACHED = {
    "overload": (
        "def exp(x):\n    return x\n",
        "from PKG.a import exp\nfrom numba.extending import overload\n"
        "from PKG.c import real\n@overload(exp, strict=False)\ndef _exp(x):\n"
        "    return lambda x: real(x)\n",
        "def main(x):\n    return exp(x)\n",
    ),
    "a class attribute's key": (
        "class Kind:\n    pass\n",
        "from numba.core.typing.templates import infer_getattr\n"
        "from PKG.a import Kind\n"
        "from PKG.c import real\n@infer_getattr\nclass _Fields:\n    key = Kind\n"
        "    def generic(self):\n        return real(self)\n",
        "def main(x):\n    return Kind()\n",
    ),
    "a table that a decorator fills": (
        "TABLE = {}\ndef register(name):\n    def keep(f):\n        TABLE[name] = f\n"
        "        return f\n    return keep\n",
        "from PKG.a import register\nfrom PKG.c import real\n@register('one')\n"
        "def one(x):\n    return real(x)\n",
        "def main(x):\n    return TABLE['one'](x)\n",
    ),
    "a table that a statement fills": (
        "TABLE = {}\n",
        "from PKG.a import TABLE\nfrom PKG.c import real\nTABLE['one'] = real\n",
        "def main(x):\n    return TABLE['one'](x)\n",
    ),
    "a call at the top": (
        "TABLE = []\ndef register(f):\n    TABLE.append(f)\n",
        "from PKG.a import register\nfrom PKG.c import real\nregister(real)\n",
        "def main(x):\n    return TABLE[0](x)\n",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef solve(x):\n    return x\n",
        "from PKG.a import solve\nfrom PKG.c import real\n@solve.register\n"
        "def _(x: int):\n    return real(x)\n",
        "def main(x):\n    return solve(x)\n",
    ),
    "subclasses that are asked for": (
        "class Base:\n    pass\n",
        "from PKG.a import Base\nfrom PKG.c import real\nclass One(Base):\n"
        "    def go(self, x):\n        return real(x)\n",
        "def main(x):\n    return Base.__subclasses__()[0]().go(x)\n",
    ),
    "subclasses that are registered": (
        "class Base:\n    known = {}\n    def __init_subclass__(cls):\n"
        "        Base.known[cls.__name__] = cls\n",
        "from PKG.a import Base\nfrom PKG.c import real\nclass One(Base):\n"
        "    def go(self, x):\n        return real(x)\n",
        "def main(x):\n    return Base.known['One']().go(x)\n",
    ),
    "a base": (
        "from PKG.b import Base\n",
        "from PKG.c import real\nclass Base:\n    def go(self, x):\n"
        "        return real(x)\n",
        "class Own(Base):\n    pass\ndef main(x):\n    return Own().go(x)\n",
    ),
    "a module as a value": (
        "from PKG import b\n",
        "from PKG.c import real\ndef one(x):\n    return real(x)\n",
        "def main(x):\n    return getattr(b, 'one')(x)\n",
    ),
    "one of two imports": (
        "try:\n    from PKG.b import one\nexcept ImportError:\n    one = None\n",
        "from PKG.c import real\ndef one(x):\n    return real(x)\n",
        "def main(x):\n    return one(x)\n",
    ),
    "a default, a decorator's argument, an f-string": (
        "from PKG.b import VALUE\n",
        "from PKG.c import real\nVALUE = real\n",
        "def main(x, y=VALUE):\n    return f'{y(x)}'\n",
    ),
    "an f-string alone": (
        "from PKG.b import one\n",
        "from PKG.c import real\ndef one(x):\n    return real(x)\n",
        "def main(x):\n    return f'{one(x)!r:>{len(str(x))}}'\n",
    ),
    "the first of a comprehension": (
        "from PKG.b import x\n",
        "from PKG.c import real\nx = [real(1)]\n",
        "def main():\n    return [x for x in x]\n",
    ),
    "a class's statements": (
        "from PKG.b import value\n",
        "from PKG.c import real\nvalue = real(1)\n",
        "class Own:\n    other = value\n    def value(self):\n        return value\n"
        "def main():\n    return Own()\n",
    ),
}


@pytest.mark.parametrize("how", REACHED)
def test_what_is_registered_or_named_in_a_roundabout_way_is_reached(package, how):
    first, second, last = REACHED[how]
    third = "def real(x):\n    return x + 1\n"
    files = {"a.py": f"{first}{last}", "b.py": second, "c.py": third}
    assert package(files) != package({**files, "c.py": third.replace("+ 1", "+ 2")})
    # And a definition beside it is not.
    files |= {"c.py": f"{third}def other(x):\n    return 1\n"}
    moved = files["c.py"].replace("return 1", "return 2")
    assert package(files) == package({**files, "c.py": moved})


def test_two_functions_that_exchange_what_they_call_are_told_apart(package):
    text = (
        "from PKG.b import one, two\ndef first(x):\n    return {}(x)\n"
        "def second(x):\n    return {}(x) + 1\ndef main(x):\n"
        "    return first(x) + second(x)\n"
    )
    b = "def one(x):\n    return x\ndef two(x):\n    return -x\n"
    plain = package({"a.py": text.format("one", "two"), "b.py": b})
    assert plain != package({"a.py": text.format("two", "one"), "b.py": b})


def test_functions_that_call_each_other_have_digests_of_their_own(package):
    text = (
        "def even(n):\n    return n == 0 or odd(n - 1)\n"
        "def odd(n):\n    return n != 0 and even(n - 1)\n"
    )
    even, odd = package({"a.py": text}, "a.even", "a.odd")
    assert even != odd
    swapped = text.replace("n == 0", "n == 1")
    assert not {even, odd} & {*package({"a.py": swapped}, "a.even", "a.odd")}


def test_what_no_file_holds_is_refused(package, tmp_path):
    with pytest.raises(LookupError):
        package({"a.py": A, "b.py": B}, "a.absent")
    with pytest.raises(LookupError):
        package({"a.py": A, "b.py": B}, "absent.main")

    def local():
        return 1

    with pytest.raises(LookupError):
        digest_of(local)


def test_a_summary_is_kept_by_the_bytes_of_a_file(monkeypatch):
    source = f"x = {random.random()}\n".encode()
    made = summary(source)
    summary.cache_clear()
    monkeypatch.setattr(definitions, "_parsed", lambda source: pytest.fail("parsed"))
    assert summary(source) == made


def test_a_summary_that_another_has_written_is_not_believed(monkeypatch, tmp_path):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    source = b"y = 1\n"
    made = summary.__wrapped__(source)
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    whole = kept.read_bytes()
    forged = json.dumps(definitions._parsed(b"y = 2\n")).encode()
    for text in (b"", whole[:-1], whole[:32] + forged, forged):
        kept.write_bytes(text)
        assert summary.__wrapped__(source) == made and kept.read_bytes() == whole


TWO = """
from PKG.c import real
from PKG.d import other
"""
SIDE = {"c.py": "def real():\n    return 1\n", "d.py": "def other():\n    return 2\n"}
APART = {
    # Two programs of other numbers, which a digest must tell apart.
    "two names of one statement": ("A, B = 1, 2\ndef main():\n    return A", "A", "B"),
    "two private ones": ("_A, _B = 1, 2\ndef main():\n    return _A", "n _A", "n _B"),
    "two of a loop": (
        "for A, B in [(1, 2)]:\n    pass\ndef main():\n    return A",
        "return A",
        "return B",
    ),
    "the order of bindings": (
        "X = 1\nX = 2\nY = X\ndef main():\n    return Y",
        "X = 2\nY = X",
        "Y = X\nX = 2",
    ),
    "the order of acts": (
        "T = []\nT.append(1)\nT.append(2)\ndef main():\n    return T",
        "T.append(1)\nT.append(2)",
        "T.append(2)\nT.append(1)",
    ),
    "two equal generators": (
        "import random\n_A = random.Random(0)\n_B = random.Random(0)\n"
        "def main():\n    return _A.random() - _A.random()",
        "- _A",
        "- _B",
    ),
    "a star of another library": (
        "from math import *\ndef main():\n    return log(2.0)",
        "math",
        "cmath",
    ),
    "a library that is tried": (
        "def main():\n    try:\n        import json\n        return 1\n"
        "    except ImportError:\n        return 2",
        "json",
        "jsn",
    ),
    "imports of two methods": (
        "class K:\n    def a(self):\n        from math import sqrt as s\n"
        "        return s(4)\n    def b(self):\n        from math import exp as s\n"
        "        return s(0)\ndef main():\n    return K().a()",
        "sqrt",
        "exp",
    ),
    "a lone return": ("X = 1\rdef main():\r    return X", "X = 1", "X = 3"),
}
NAMED = {
    "the first of two that are tried": (
        "try:\n    from PKG.c import real\nexcept ImportError:\n"
        "    from PKG.d import other as real\ndef main():\n    return real()\n"
    ),
    "one of two in a function": (
        "def main():\n    try:\n        from PKG.c import real\n"
        "    except ImportError:\n        from PKG.d import other as real\n"
        "    return real()\n"
    ),
    "one of two methods'": (
        "class K:\n    def a(self):\n        from PKG.c import real as f\n"
        "        return f()\n    def b(self):\n        from PKG.d import other as f\n"
        "        return f()\ndef main():\n    return K().a()\n"
    ),
    "a definition's namesake": (
        "def real():\n    return 0\nfrom PKG.c import real\n"
        "def main():\n    return real()\n"
    ),
    "x = x in a class": (
        f"{TWO}class K:\n    real = real\ndef main():\n    return K.real()\n"
    ),
    "a function's within a class": (
        f"{TWO}class K:\n    go = lambda self: real()\n    real = other\n"
        "def main():\n    return K().go()\n"
    ),
    "a global in a function within": (
        f"{TWO}def main():\n    real = 5\n    def inner():\n        global real\n"
        "        return real()\n    return inner()\n"
    ),
    "a module's own names": f"{TWO}def main():\n    return globals()['real']()\n",
    "a module by its written name": (
        "import importlib\ndef main():\n"
        "    return importlib.import_module('PKG.c').real()\n"
    ),
    "a re-export of a module": (
        "from PKG import b\ndef main():\n    return getattr(b, 'real')()\n"
    ),
    "a call whose value is kept": (
        f"{TWO}T = []\ndef keep(f):\n    T.append(f)\n_ = keep(real)\n"
        "def main():\n    return T[0]()\n"
    ),
    "a decorator with a helper": (
        f"{TWO}T = []\ndef _put(f):\n    T.append(f)\ndef keep(f):\n    _put(f)\n"
        "    return f\n@keep\ndef one():\n    return real()\n"
        "def main():\n    return T[0]()\n"
    ),
    "a class that calls": (
        f"{TWO}T = []\ndef keep(f):\n    T.append(f)\nclass K:\n    keep(real)\n"
        "def main():\n    return T[0]()\n"
    ),
    "a metaclass": (
        f"{TWO}T = []\nclass Meta(type):\n    def __init__(cls, *a):\n"
        "        T.append(cls)\nclass Base(metaclass=Meta):\n    pass\n"
        "class One(Base):\n    go = real\ndef main():\n    return T[-1].go()\n"
    ),
    "a base with parameters": (
        f"{TWO}class Base(Generic[T]):\n    pass\n"
        "class One(Base[int]):\n    go = real\n"
        "def main():\n    return Base.__subclasses__()[0].go()\n"
    ),
    "a table that grows": (
        f"{TWO}T = []\nT += [real]\ndef main():\n    return T[0]()\n"
    ),
    "an overload of another library's": (
        f"{TWO}from numba.extending import overload\nimport numpy as np\n"
        "@overload(np.cbrt)\ndef _c(x):\n    return lambda x: real()\n"
        "def main(x):\n    return np.cbrt(x)\n"
    ),
}


@pytest.mark.parametrize("change", APART)
def test_what_differs_has_another_digest(package, change):
    text, old, new = APART[change]
    assert text.count(old) == 1 or change == "two names of one statement"
    other = text[::-1].replace(old[::-1], new[::-1], 1)[::-1]
    assert package({"a.py": text}) != package({"a.py": other})


@pytest.mark.parametrize("how", NAMED)
def test_what_is_named_in_several_ways_is_reached(package, how):
    files = {"a.py": NAMED[how], "b.py": "from PKG.c import real\n", **SIDE}
    other = {**files, "c.py": SIDE["c.py"].replace("1", "3")}
    assert package(files) != package(other)


def test_ends_of_lines_and_odd_names_are_no_matter(package):
    before = package({"a.py": A, "b.py": B})
    assert package({"a.py": A.replace("\n", "\r\n"), "b.py": B}) == before
    odd = {"a.py": "def \u2118():\n    return 1\nmain = \u2118\n"}
    assert package(odd) != package({"a.py": odd["a.py"].replace("1", "2")})


def test_what_is_edited_meanwhile_is_kept_under_no_state(package, tmp_path):
    (before,) = package({"a.py": A, "b.py": B}, "b.SCALE")
    top = f"made_{tmp_path.name}"
    sources, file = Sources([top]), tmp_path / top / "b.py"
    assert sources._kept  # of the files as they are
    file.write_text(B.replace("def helper", "def helper_"))
    with pytest.raises(LookupError):
        sources.digest(f"{top}.b", "helper")
    assert sources.digest(f"{top}.b", "helper_")
    file.write_text(B)
    assert "helper_" not in str(Sources([top])._kept)
    assert package({"a.py": A, "b.py": B}, "b.SCALE") == [before]


def digest(target, **edited):
    """The digest of a definition of the package where files have other texts."""
    module, _, name = target.rpartition(".")
    return Sources(["dp_erm_bench"], edited).digest(module, name)


def edited(tmp_path, file, old, new):
    text = (ROOT / file).read_text()
    assert old in text
    path = tmp_path / Path(file).name
    path.write_text(text.replace(old, new, 1))
    module = "dp_erm_bench." + ".".join(Path(file).with_suffix("").parts)
    return {module: path}


RANDOM_CD = "dp_erm_bench.solvers.random_cd.RandomCD"
L2 = "dp_erm_bench.penalties.separable.L2"
LOGISTIC = "dp_erm_bench.losses.smooth.Logistic"
HUBER = "dp_erm_bench.losses.smooth.Huber"
EXECUTE = "dp_erm_bench.runner.execute.run_batch"
CARDINALITY = "dp_erm_bench.norms.cardinality.Cardinality"


def test_an_untouched_norm_is_in_no_other_key(tmp_path):
    file = edited(
        tmp_path, "norms/cardinality.py", "BEYOND = 64, 16, 9.0", "BEYOND = 64, 16, 8.0"
    )
    assert digest(CARDINALITY, **file) != digest(CARDINALITY)
    for target in (RANDOM_CD, L2, LOGISTIC, EXECUTE):
        assert digest(target, **file) == digest(target)


def test_the_registry_is_in_no_key(tmp_path):
    file = edited(tmp_path, "registry.py", 'SUFFIX = ".yaml"', 'SUFFIX = ".yml"')
    for target in (RANDOM_CD, EXECUTE):
        assert digest(target, **file) == digest(target)


def test_a_constant_of_a_helper_that_a_kernel_inlines_is_in_the_loss_that_needs_it(
    tmp_path,
):
    old = "s = 1.0 / 6227020800.0"
    file = edited(tmp_path, "kernels/elementary.py", old, old.replace("1.0", "1.5", 1))
    # Reached through `overload` alone.
    assert digest(LOGISTIC, **file) != digest(LOGISTIC)
    assert digest(HUBER, **file) == digest(HUBER)


def test_no_comment_of_the_package_is_in_a_digest(tmp_path):
    """Every file with its comments and docstrings taken out has the same digests."""
    parts = (ROOT.joinpath(layer).rglob("*.py") for layer in definitions.LAYERS)
    files = {}
    for path in (*itertools.chain(*parts), ROOT / "run.py", ROOT / "errors.py"):
        names = path.relative_to(ROOT.parent).with_suffix("").parts
        module = ".".join(names).removesuffix(".__init__")
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if definitions._is_text(node):
                within = slice(node.lineno - 1, node.end_lineno)
                blank = [""] * (node.end_lineno - node.lineno)
                lines[within] = [" " * node.col_offset + '"x"', *blank]
        files[module] = bare = tmp_path / f"{module}.py"
        bare.write_text("\n".join(["# A comment.", *lines, "", "# The end.", ""]))
    for target in (RANDOM_CD, L2, EXECUTE, CARDINALITY):
        assert digest(target, **files) == digest(target), target


def test_digests_of_objects_are_those_of_their_names():
    from dp_erm_bench.losses.smooth import Logistic

    assert digest_of(Logistic) == digest(LOGISTIC)


TRICKY = '''
# é
_X, y = 1, f"é{_X!r:>{_X}}" "and" rf"\\d{{{y}}}"
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
from dp_erm_bench import definitions
files = json.load(sys.stdin)
made = [definitions._parsed(text.encode()) for text in files]
print(json.dumps([each._asdict() for each in made]))
"""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_another_version_of_python_gives_the_same_digests(version):
    known = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python3"))
    python = str(known[0]) if known else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"not run: there is no Python {version} here")
    parts = ("kernels", "releases", "solvers", "runner")
    files = [path for part in parts for path in (ROOT / part).glob("*.py")]
    texts = [TRICKY, *(path.read_text() for path in files)]
    done = subprocess.run(
        [python, "-c", PROGRAM],
        input=json.dumps(texts),
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    here = [definitions._parsed(text.encode())._asdict() for text in texts]
    assert json.loads(done.stdout) == json.loads(json.dumps(here))
