"""Test that functions are named by verbs, by the nouns they return, or as questions."""

import ast
import collections
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "dp_erm_bench"
IRREGULAR = set(
    "begun bound broken brought built caught chosen come done drawn driven fallen fed "
    "felt found forgotten given gone got gotten grown heard held hidden kept known "
    "laid led left lent lost made meant met paid proven risen said seen sent shown "
    "shrunk sold sought spent spoken stood sunk swept sworn taken taught told thought "
    "thrown torn understood won worn written".split()
)
REGULAR = re.compile(r"\w+ed")
NO_PARTICIPLES = set(
    "bleed breed embed exceed feed need proceed seed shed speed".split()
)
TRUTH = re.compile(r"_*(is|has|can|are|may)_\w+")
TRUTHS = {"bool", "bool | None", "Array", "Any"}
"""What functions return that begin like a question."""
KEPT = {
    "uncharged": "solver files publish by it; so is the column that lists such uses",
    "violated": "claims name it as their measure",
}
"""Names that are participles, with the reason why they stay."""
KERNELS = {
    PACKAGE / "kernels" / f"{name}.py"
    for name in ("dense", "sparse", "stochastic", "elementary", "elementwise")
}
"""Modules of one interface: a caller takes that of its data, by the same names."""
ONE_WORD = 0.16
"""Part of the distinct names of functions that may have one word."""
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def functions():
    """Yield each function of the package but those that Python names."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                yield path, node


MANY = 3
"""Parameters from which a public function describes each of them."""


def public_functions():
    """Yield the public functions of modules and classes, not those inside functions."""
    for path, tree in TREES.items():
        bodies = [
            tree,
            *(node for node in ast.walk(tree) if type(node) is ast.ClassDef),
        ]
        for body in bodies:
            for node in body.body:
                if isinstance(node, ast.FunctionDef) and node.name[0] != "_":
                    if "overload" not in map(ast.unparse, node.decorator_list):
                        yield path, node


def test_a_public_function_describes_its_parameters():
    found = []
    for path, node in public_functions():
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        many = sum(one.arg not in ("self", "cls") for one in given) >= MANY
        if many and "Parameters\n---" not in (ast.get_docstring(node) or ""):
            found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}")
    assert not found, "add a numpydoc section Parameters, with shapes and units"


def is_participle(name):
    word = name.strip("_")
    stems = {word, word.removeprefix("un"), word.removeprefix("re")}
    regular = REGULAR.fullmatch(word) and word not in NO_PARTICIPLES
    return bool(regular or stems & IRREGULAR) and "_" not in word


def test_no_function_is_a_bare_participle():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path, node in functions()
        if is_participle(node.name) and node.name not in KEPT
    ]
    assert not found, "say what is done, or the noun that is returned: rename these"
    assert KEPT.keys() <= {node.name for _, node in functions()}


def test_a_predicate_returns_a_truth_value():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path, node in functions()
        if TRUTH.fullmatch(node.name) and node.returns
        if ast.unparse(node.returns) not in TRUTHS
    ]
    assert not found


def test_the_list_of_participles_knows_regular_and_irregular_ones():
    told = "told unheard _kept resolved applied remade".split()
    assert all(map(is_participle, told))
    assert not any(map(is_participle, "fit seed draw_bands prox released_sums".split()))


def test_few_names_have_one_word():
    names = {node.name.strip("_") for _, node in functions()}
    single = [name for name in names if "_" not in name]
    assert len(single) <= ONE_WORD * len(names)


def test_a_class_or_a_public_function_is_defined_in_one_module():
    homes = collections.defaultdict(set)
    for path, tree in TREES.items():
        for node in tree.body:
            is_class = isinstance(node, ast.ClassDef)
            public = isinstance(node, ast.FunctionDef) and node.name[0] != "_"
            if is_class or public:
                homes[node.name].add(path)
    twice = {name for name, paths in homes.items() if len(paths) > 1}
    assert not {name for name in twice if not homes[name] <= KERNELS}
