import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.files import PLAN
from dp_erm_bench.results.store import Plan, plan_checksum, read_plan


def row(number, code="0", **labels):
    usual = {"experiment": "e", "panel": "p", "line": "l", "phase": "sweep"}
    key = {"key": f"{code}{number:063x}"}
    spec = {"seed": number, "algorithm": {"tuned": 1, "spec": 2}}
    return {**key, **usual, **labels, "tuned": False, "measured": False, "spec": spec}


def publish(folder, rows, append):
    with Plan(folder, append) as plan:
        plan.add(rows)
    return [*read_plan(folder)]


def test_no_plan_is_empty_and_leaves_no_trace(tmp_path):
    with Plan(tmp_path / "none", append=True) as plan:
        assert plan.published == -1
    assert [*read_plan(tmp_path / "none")] == []
    assert plan_checksum(tmp_path / "none") == -1
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("append", [True, False])
def test_a_plan_grows_and_keeps_its_order(tmp_path, append):
    with Plan(tmp_path, append) as plan:
        plan.add([row(2), row(1)])
        assert [*read_plan(tmp_path)] == [row(2), row(1)]
        plan.add([row(0)])
        assert plan.published == plan_checksum(tmp_path)
    assert [*read_plan(tmp_path)] == [row(2), row(1), row(0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", PLAN]


def test_an_experiment_replaces_and_a_sweep_adds(tmp_path):
    assert publish(tmp_path, [row(1)], append=False) == [row(1)]
    assert publish(tmp_path, [row(2), row(1)], append=True) == [row(1), row(2)]
    assert publish(tmp_path, [row(3)], append=False) == [row(3)]
    assert publish(tmp_path, [], append=False) == []


@given(st.lists(st.lists(st.integers(0, 9), unique=True), max_size=4))
def test_sweeps_in_any_order_leave_each_line_once(tmp_path_factory, sweeps):
    folder = tmp_path_factory.mktemp("plan")
    for sweep in sweeps:
        publish(folder, map(row, sweep), append=True)
    expected = dict.fromkeys(number for sweep in sweeps for number in sweep)
    assert [*read_plan(folder)] == [row(number) for number in expected]


def test_a_sweep_that_is_there_writes_nothing(tmp_path):
    publish(tmp_path, [row(1), row(2)], append=True)
    before = (tmp_path / PLAN).stat()
    publish(tmp_path, [row(2)], append=True)
    after = (tmp_path / PLAN).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_trial_of_other_code_takes_the_place_of_the_old_one(tmp_path):
    publish(tmp_path, [row(1), row(2)], append=True)
    assert publish(tmp_path, [row(1, "a")], append=True) == [row(2), row(1, "a")]


@pytest.mark.parametrize("file", ["/a/own.py", '/b/o"w\\n".py'])
@pytest.mark.parametrize("edited", [True, False])
def test_a_solvers_file_is_code_wherever_it_lies(tmp_path, file, edited):
    old, new = row(1), row(1, code="f" if edited else "0")
    old["spec"]["algorithm"] |= {"file": "/a/own.py", "content": "0a"}
    new["spec"]["algorithm"] |= {"file": file, "content": "b1" if edited else "0a"}
    publish(tmp_path, [old], append=True)
    found = publish(tmp_path, [new, row(2)], append=True)
    assert [line["key"] for line in found] == [new["key"], row(2)["key"]]


@pytest.mark.parametrize("label", ["experiment", "panel", "line", "phase"])
def test_a_trial_of_another_line_stands_beside(tmp_path, label):
    publish(tmp_path, [row(1)], append=True)
    other = row(1, **{label: 'an"other,"tuned":'})
    assert publish(tmp_path, [other], append=True) == [row(1), other]


def test_each_of_two_runs_can_put_its_plan_back(tmp_path):
    with Plan(tmp_path, append=False) as one, Plan(tmp_path, append=False) as two:
        one.add([row(1)])
        two.add([row(2)])
        one.add([row(3)])
        assert [*read_plan(tmp_path)] == [row(1), row(3)]
        two.restore()
        assert [*read_plan(tmp_path)] == [row(2)]
        before = (tmp_path / PLAN).stat().st_ino
        two.restore()
        assert (tmp_path / PLAN).stat().st_ino == before


def test_a_sweep_is_put_back_beside_what_came_since(tmp_path):
    with Plan(tmp_path, append=True) as plan:
        plan.add([row(1)])
        publish(tmp_path, [row(2)], append=False)
        plan.restore()
    assert [*read_plan(tmp_path)] == [row(2), row(1)]


@pytest.mark.parametrize(
    "damage", [b"", b"\n", b"[1]\n", b'{"key":1}\n', b"\xff\xfe\n", b'{"key":"00"}\n']
)
def test_damaged_lines_are_told_apart_and_keep_no_one_from_adding(tmp_path, damage):
    publish(tmp_path, [row(1)], append=True)
    path = tmp_path / PLAN
    path.write_bytes(path.read_bytes() + damage + path.read_bytes()[:-30])
    found = [*read_plan(tmp_path)]
    assert found[0] == row(1) and found[1:] == [None] * (1 + bool(damage))
    again = publish(tmp_path, [row(1), row(2)], append=True)
    assert [one for one in again if one] == [row(1), row(2)]


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path):
    publish(tmp_path, [row(1), row(2)], append=True)
    path = tmp_path / PLAN
    path.write_bytes(path.read_bytes()[:-20])
    assert publish(tmp_path, [row(2), row(3)], append=True) == [row(1), row(2), row(3)]


def test_the_lines_are_plain_json(tmp_path):
    publish(tmp_path, [row(1)], append=False)
    text = (tmp_path / PLAN).read_text()
    told = json.loads(text)
    assert {key: told[key] for key in row(1)} == row(1) and text.endswith("}\n")


def test_a_plan_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with Plan(tmp_path / "file", append=True) as plan:
        with pytest.raises(UsageError, match="file: File exists; what is recorded"):
            plan.add([row(1)])


def unsealed(rows):
    return b"".join(json.dumps(r, separators=(",", ":")).encode() + b"\n" for r in rows)


def test_a_key_whose_spec_is_spelled_in_two_ways_is_none(tmp_path):
    rows = [row(1), {**row(1), "line": "other"}]
    rows[0]["spec"] = {"dataset": {"path": "a"}, "algorithm": {"params": {"step": 1}}}
    rows[1]["spec"] = {"dataset": {"path": "b"}, "algorithm": {"params": {}}}
    assert publish(tmp_path, rows, append=True) == rows


def test_a_line_of_a_new_plan_without_its_checksum_is_damage(tmp_path):
    publish(tmp_path, [row(1), row(2)], append=True)
    path = tmp_path / PLAN
    path.write_bytes(unsealed([row(1)]) + path.read_bytes().split(b"\n")[1] + b"\n")
    assert [*read_plan(tmp_path)] == [None, row(2)]
    assert publish(tmp_path, [row(1), row(2)], append=True) == [row(2), row(1)]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_lines_that_are_gone_are_counted(tmp_path, gone):
    publish(tmp_path, map(row, range(3)), append=True)
    lines = (tmp_path / PLAN).read_bytes().splitlines(keepends=True)
    (tmp_path / PLAN).write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    found = [*read_plan(tmp_path)]
    assert found == [*(row(n) for n in range(3) if n != gone), None]
    (tmp_path / PLAN).write_bytes(b"".join([*lines, lines[gone]]))
    found = [*read_plan(tmp_path)]
    assert found == [*map(row, range(3)), None]
