"""Test a full or read-only disk: one sentence is printed, and no record is lost."""

import os
import signal
import subprocess

import pytest
from launch import children, ended, small_files, wait_for, without_privilege

SEEDS = 40


def the_rest_runs(runs):
    """Run again: what is recorded stays, the rest is run once."""
    kept = runs.recorded()
    assert 0 < kept < SEEDS
    runs.calls()
    assert runs("wordy", SEEDS).code == 0
    assert len(runs.calls()) == SEEDS - kept
    assert runs.recorded() == SEEDS
    return True


def one_sentence(found, reason):
    assert found.code == 2
    assert found.err.startswith("dp-erm-bench: ")
    assert f"run: {reason}; what is recorded stays" in found.err
    assert found.err.count("\n") == 1
    return True


@pytest.mark.parametrize("batch_trials", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_a_quota_ends_the_run_with_one_sentence(runs, batch_trials):
    limit = {"setup": small_files(60_000), "batch_trials": batch_trials}
    found = ended(runs.start("wordy", SEEDS, n_jobs=1, **limit))
    assert one_sentence(found, "File too large")
    assert the_rest_runs(runs)


def test_a_quota_that_not_even_the_plan_fits_into(runs):
    found = ended(runs.start("wordy", SEEDS, setup=small_files(20_000)))
    assert one_sentence(found, "File too large")
    assert runs.calls() == [] and runs.outcome() == "failed"


@pytest.fixture
def small_disk(runs):
    """A disk of 100 kB, with what grows it; a quota where none may be mounted."""
    runs.folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", runs.folder]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0

    def grow():
        if mounted:
            grown = ["mount", "-o", "remount,size=10m", runs.folder]
            subprocess.run(grown, check=True)

    reason = "No space left on device" if mounted else "File too large"
    yield reason, grow, None if mounted else small_files(60_000)
    if mounted:
        subprocess.run(["umount", runs.folder], check=True)


def test_a_full_disk_ends_the_run_with_one_sentence(runs, small_disk):
    reason, grow, setup = small_disk
    found = ended(runs.start("wordy", SEEDS, setup=setup))
    assert one_sentence(found, reason)
    grow()
    assert the_rest_runs(runs)


def test_a_folder_that_takes_nothing_is_told_before_anything_runs(runs):
    runs.folder.mkdir(mode=0o555)
    found = ended(runs.start("healthy", setup=without_privilege))
    assert one_sentence(found, "Permission denied")
    assert runs.calls() == []
    assert not any(runs.folder.iterdir())


def test_a_folder_that_turns_read_only_ends_the_run(runs):
    process = runs.start("slow", SEEDS, setup=without_privilege, batch_trials=1)
    wait_for(lambda: runs.recorded() > 2)
    os.chmod(runs.folder / "records.jsonl", 0o444)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    assert one_sentence(ended(process), "Permission denied")
    os.chmod(runs.folder / "records.jsonl", 0o644)
    assert the_rest_runs(runs)
