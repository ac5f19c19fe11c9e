"""Test that code that runs from a large number on is found with a small number."""

import pytest

from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.shrunken import large_numbers_of
from dp_erm_bench.contract.suite import EXEMPT, NOT_ALL_RUN, OK
from tests.contract.corpus import sound
from tests.contract.own import check_named
from tests.loops import each

DECLARED = "        size = adjacency.of_sum(np.atleast_2d(self.cap))\n"
SUMMED = "                summed = oracle.clipped_sum(cap)\n"
EXEMPTED = '    exempt = {\n        "the_limit'


def descent(*lines, behind=DECLARED):
    made = "".join(f"{line}\n" for line in lines)
    return sound("descent", (behind, behind + made)).text


HIDDEN = {
    "30000": descent("        size = size / (2 if problem.n >= 30000 else 1)"),
    "1 << 15": descent("        size = size / max(1, problem.n // (1 << 15))"),
    "4096.0": descent("        size = size * min(1.0, 4096.0 / problem.n)"),
    "150": descent("                summed *= 3.0 if t == 150 else 1.0", behind=SUMMED),
    "5000": descent("                summed[:, 5000:] *= 3.0", behind=SUMMED),
}


@pytest.fixture
def result(tmp_path):
    def judge(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        made = candidate_of(str(path))
        return check_named("large_numbers_hide_nothing").result(made), made

    return judge


@each("number", HIDDEN)
def test_what_begins_at_a_size_is_named_with_the_size(number, result):
    found, made = result(HIDDEN[number])
    assert found.verdict == NOT_ALL_RUN
    assert found.reason.startswith(f"with {number.replace(' ', '')} made ")
    assert "times its declared sensitivity" in found.reason
    assert large_numbers_of(made) == {number.replace(" ", "")}


def test_what_is_the_same_at_any_size_is_not_named(result):
    line = "        size = size * (problem.n + 30000) / (problem.n + 30000)"
    found, _ = result(descent(line))
    assert found.verdict == OK


def test_a_number_of_a_parameter_and_one_with_a_reason_are_not_asked_for(result):
    text = HIDDEN["30000"]
    found, _ = result(
        text.replace(EXEMPTED, EXEMPTED.replace("{", '{"30000": "it is safe",'))
    )
    assert found.verdict == EXEMPT
    found, made = result(sound("descent", ("shape(8,", "shape(800,")).text)
    assert found.verdict == EXEMPT and not large_numbers_of(made)


HEAD = "@dataclass(frozen=True)\n"
OWN = "def Limit(n, most):\n    return n >= most\n\n\n"


def test_what_a_name_is_in_the_module_says_whether_it_makes_a_parameter(result):
    line = "        size = size / (2 if Limit(problem.n, 30000) else 1)"
    found, made = result(descent(line).replace(HEAD, OWN + HEAD, 1))
    assert found.verdict == NOT_ALL_RUN and large_numbers_of(made) == {"30000"}
    own = "import dp_erm_bench.extend as own\n\n\n"
    text = sound("descent", ("shape(8,", "own.shape(800,")).text
    found, made = result(text.replace(HEAD, own + HEAD, 1))
    assert found.verdict == EXEMPT and not large_numbers_of(made)


TABLE = "TABLE = np.arange(256.0)\nLAST = TABLE[200]\nKEPT = {}\n"
WINDOW = descent("        size = size / (2 if 30000 <= problem.n < 100000 else 1)")
LIMITED = (
    "    def iterations(self, problem):\n",
    "    def unsupported_reason(self, problem):\n"
    "        if problem.n > 1000000:\n"
    '            return "too many records"\n'
    "        return None\n\n"
    "    def iterations(self, problem):\n",
)


KINDS = (
    "    def iterations(self, problem):\n",
    "    def kind(self, problem):\n"
    "        if problem.n > 30000:\n"
    '            return "many"\n'
    '        return "few"\n\n'
    "    def iterations(self, problem):\n",
)
SAID = descent('        size = size / (2 if self.kind(problem) == "many" else 1)')


@each(
    "text, words",
    [
        (SAID.replace(*KINDS), "with 30000 made 3: "),
        (sound("descent", ("KEPT = {}\n", TABLE)).text, "it raises IndexError"),
        (WINDOW, "with 30000 made 3: "),
        (HIDDEN["30000"].replace(*LIMITED), "with 30000 made 3: "),
    ],
)
def test_what_all_small_numbers_together_hide_or_break_is_named(text, words, result):
    found, _ = result(text)
    assert found.verdict == NOT_ALL_RUN and words in found.reason
