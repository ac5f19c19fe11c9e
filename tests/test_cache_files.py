"""Test that damaged or forged cache files do not change any number."""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dp_erm_bench import cached
from dp_erm_bench.accounting import calibration, least
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.optimum import certified as optimum
from dp_erm_bench.runner import host, worker
from tests.privacy.made import law_of

BUDGET = Budget(1.0, 1e-6)
GAUSSIAN = (law_of("gaussian", 50),)
MIXED = (law_of("laplace", 20), law_of("pure", 20))
SAMPLED = (law_of("poisson_gaussian", 20, rate=0.1),)
SIGNED = b'"digest": "'


@pytest.fixture
def tmp_path(tmp_path):
    """A folder in memory where there is one: thousands of files are renamed."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(cached, "_run", {})
    forget()
    yield
    forget()


def forget():
    """Begin a process anew."""
    calibration._load_calibration.cache_clear()


def found(events=GAUSSIAN, mode="certified", printed=None):
    forget()
    return calibrate(events, BUDGET, mode, printed)


def problem_of(penalty=("l2", 0.1), constraint="none"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = np.where(X[:, 0] + rng.normal(size=30) > 0.0, 1.0, -1.0)
    name, strength = penalty
    part = {"name": name, "strength": strength} if strength else name
    part = {"name": "box", "lower": -0.1, "upper": 0.2} if name == "box" else part
    return build_problem(dataset_from_arrays(X, y), "logistic", part, constraint)


PROBLEMS = {
    "l2": {},
    "l1": {"penalty": ("l1", 0.02)},
    "free": {"penalty": ("none", None)},
    "box": {"penalty": ("box", None)},
    "l1_ball": {
        "penalty": ("none", None),
        "constraint": {"name": "l1_ball", "radius": 0.3},
    },
    "l2_ball": {"constraint": {"name": "l2_ball", "radius": 0.3}},
    "simplex": {
        "penalty": ("none", None),
        "constraint": {"name": "simplex", "radius": 0.3},
    },
    "polytope": {
        "penalty": ("none", None),
        "constraint": {
            "name": "polytope",
            "vertices": [[0.2, 0, 0], [0, 0.2, 0], [-0.2, -0.1, 0.1]],
        },
    },
}


def stored(tmp_path, kind):
    (path,) = (tmp_path / kind).iterdir()
    return path


def forged(path, change):
    """Rewrite a file with other values and a digest that fits."""
    facts = json.loads(path.read_text())
    del facts["digest"], facts["seal"]
    body = json.dumps({**facts, **change})[:-1].encode() + b", "
    signed(path, body)


def signed(path, body):
    said = hashlib.sha256(f"{path.parent.name} {path.stem} ".encode() + body)
    end = f'{said.hexdigest()}", "seal": "{"0" * 64}"}}'
    path.write_bytes(body + SIGNED + end.encode())


def spoilt(rng, raw):
    """One flipped bit, a part, or lines lost or doubled."""
    way = rng.randrange(5)
    place = rng.randrange(len(raw))
    if way == 0:
        return raw[:place]
    if way == 1:
        return raw[:place] + raw[place + rng.randrange(1, 20) :]
    if way == 2:
        return raw[: place + 5] + raw[place:]
    if way == 3 and rng.random() < 0.1:
        return rng.choice([b"", raw + raw, raw + b"\n" + raw])
    flipped = bytearray(raw)
    flipped[place] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def test_damage_never_changes_a_calibration(tmp_path):
    rng, known = random.Random(0), found()
    path = stored(tmp_path, "calibration")
    raw = path.read_bytes()
    for _ in range(1700):
        path.write_bytes(spoilt(rng, raw))
        assert found() == known
        assert path.read_bytes()[:-66] == raw[:-66]


def test_damage_never_changes_an_optimum(tmp_path):
    rng, problem = random.Random(1), problem_of()
    known = optimum.certified_optimum(problem)
    path = stored(tmp_path, "optimum")
    raw = path.read_bytes()
    for _ in range(1700):
        path.write_bytes(spoilt(rng, raw))
        again = optimum.certified_optimum(problem)
        assert again.value == known.value and (again.w == known.w).all()
        assert path.read_bytes()[:-66] == raw[:-66]


@pytest.mark.parametrize("kind", ["calibration", "optimum"])
def test_signed_nonsense_never_changes_a_number(kind, tmp_path):
    """Damage to the body with a digest that fits: still proved, or computed anew."""
    rng, problem = random.Random(2), problem_of()
    known, best = found(), optimum.certified_optimum(problem)
    path = stored(tmp_path, kind)
    body = path.read_bytes().partition(SIGNED)[0]
    for _ in range(400):
        signed(path, spoilt(rng, body))
        if kind == "calibration":
            now = found()
            assert now.z == pytest.approx(known.z, rel=2e-9)
            assert 1 - 1e-8 <= now.epsilon_certified <= 1.0
            assert (now.budget, now.label) == (known.budget, known.label)
        else:
            again = optimum.certified_optimum(problem)
            assert again.value == pytest.approx(best.value, rel=2e-9)
            assert again.gap <= 1e-9


LIES = (0, 0.0, -5, -5.0, 3.6, 1e300, 5e-324, "3.6", None, True, [3.6], {"z": 1})
LIES += (float("nan"), float("inf"), 10**400)


@pytest.mark.parametrize("events", [GAUSSIAN, MIXED, SAMPLED])
def test_a_forged_multiplier_is_not_used(events, tmp_path):
    known = found(events)
    path = stored(tmp_path, "calibration")
    raw = path.read_bytes()
    others = (known.z * (1 - 3e-4), known.z * (1 + 3e-4), known.z / 2)
    for z in (*LIES, *others) if events is GAUSSIAN else others:
        forged(path, {"z": z})
        assert found(events) == known
        assert path.read_bytes() == raw


def test_a_multiplier_that_another_accountant_beats_is_not_used(tmp_path):
    """The least z of Renyi accounting is proved, but not the least that is."""
    known = found(MIXED)
    assert known.accountant == "pld"
    quick = least.smallest_multiplier(
        lambda z: least.quick_certificate(MIXED, z, 1e-6).epsilon, 1.0, known.z, 1e-10
    )
    assert quick > 1.01 * known.z
    forged(stored(tmp_path, "calibration"), {"z": quick, "accountant": "rdp"})
    assert found(MIXED) == known


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_certified": 0.01},
        {"epsilon_certified": -1.0},
        {"label": "paper"},
        {"accountant": "pure"},
        {"accountant": ["gdp"]},
        {"budget": {"epsilon": 9.0}},
    ],
)
def test_nothing_but_the_multiplier_is_believed(change, tmp_path):
    known = found()
    forged(stored(tmp_path, "calibration"), change)
    assert found() == known


@pytest.mark.parametrize("z", [0.1, 3.6])
def test_a_forged_printed_multiplier_is_not_used(z, tmp_path):
    known = found(mode="paper", printed="mangold2022")
    forged(stored(tmp_path, "calibration"), {"z": z, "epsilon_certified": 0.5})
    assert found(mode="paper", printed="mangold2022") == known


def test_the_verdict_of_a_run_travels(tmp_path, monkeypatch):
    """What a worker proved the others of its run believe, and nobody else does."""
    known, best = found(MIXED), optimum.certified_optimum(problem_of())
    asked = []
    prove, gap = calibration.proof_of_least, optimum._certify_optimum
    monkeypatch.setattr(
        calibration, "proof_of_least", lambda *a: asked.append("z") or prove(*a)
    )
    monkeypatch.setattr(
        optimum, "_certify_optimum", lambda *a: asked.append("w") or gap(*a)
    )

    def both():
        asked.clear()
        assert found(MIXED) == known
        assert optimum.certified_optimum(problem_of()).value == best.value
        return list(asked)

    assert both() == both() == ["z", "w"]
    cached.vouch_for_cache("the run's")
    assert both() == ["z", "w"]
    assert both() == []
    for kind in ("calibration", "optimum"):
        forged(stored(tmp_path, kind), {})
    assert both() == ["z", "w"]
    cached.vouch_for_cache("another run's")
    assert both() == ["z", "w"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_forged_optimum_is_computed_again(name, tmp_path, monkeypatch):
    problem = problem_of(**PROBLEMS[name])
    known = optimum.certified_optimum(problem)
    path = stored(tmp_path, "optimum")
    w = known.w.tolist()
    lies = [{"w": [0.0] * 3}, {"w": [x * 1.01 for x in w]}, {"w": [1e308] * 3}]
    lies += [{"w": v} for v in (w[:2], [*w, 0.0], [w], "text", [None] * 3, 7)]
    lies += [{"w": [float("nan")] * 3}, {"w": [[[]]]}, {"w": [10**400] * 3}]
    for lie in lies:
        forged(path, lie)
        again = optimum.certified_optimum(problem)
        assert (again.value, again.w.tolist()) == (known.value, w)
    compute = optimum.compute_optimum
    monkeypatch.setattr(optimum, "compute_optimum", None)
    # The truth is read, whatever is said of its value and gap.
    for lie in ({"value": 0.0, "gap": -1.0}, {"value": "x", "gap": None}):
        forged(path, lie)
        again = optimum.certified_optimum(problem)
        assert again.value == known.value and 0.0 <= again.gap <= 1e-9
    monkeypatch.setattr(optimum, "compute_optimum", compute)


def test_what_is_no_file_of_ours_is_passed_over(tmp_path):
    """Pipes, links, folders, a gigabyte of zeros and deep nesting."""
    known = found()
    path = stored(tmp_path, "calibration")
    raw = path.read_bytes()
    (tmp_path / "elsewhere").write_bytes(raw)

    def sparse():
        with path.open("wb") as file:
            file.truncate(1 << 30)

    ways = [
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(tmp_path / "elsewhere"),
        lambda: path.symlink_to("/dev/zero"),
        sparse,
        lambda: signed(path, b'{"z": ' + b"[" * 100_000),
        lambda: signed(path, b'{"z": 1.0\xff\xfe, '),
        lambda: path.mkdir(),
    ]
    for way in ways:
        path.unlink()
        way()
        assert found() == known
    assert path.is_dir()


def test_a_task_brings_the_secret_of_its_run(tmp_path):
    given = (str(tmp_path), "1", "fakes.bowl")
    worker.run_task([], worker.Job(*given))
    assert not cached.is_sealing()
    worker.run_task([], worker.Job(*given, secret="the run's"))
    assert cached.is_sealing()
    worker.run_task([], worker.Job(*given))
    assert not cached.is_sealing()


@pytest.mark.parametrize(("owner", "secret"), [("", "the run's"), ("a file", "")])
def test_a_solver_from_outside_never_has_the_secret(owner, secret):
    sent, one = [], object.__new__(host.Worker)
    one.owner, one.pipe = "", SimpleNamespace(send=sent.append)
    job = worker.Job("folder", "1", "fakes.bowl", secret="the run's")
    one.give([(SimpleNamespace(owner=owner, trial=None),)], job)
    ((_, told),) = sent
    assert told.secret == secret


def test_the_workers_of_a_run_say_a_thing_once(tmp_path, capfd):
    saying = "from dp_erm_bench.cached import say_once; say_once('damaged', 'it is')"
    code = f"""
from dp_erm_bench.runner import host
worker = "import sys; {saying}"
host.SERVE = worker
both = [host.start_process("", [], {{}})[0].wait() for _ in range(2)]
{saying}
{saying}
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert done.returncode == 0
    assert capfd.readouterr().err == "dp-erm-bench: it is\n" * 2
