import io

import pytest

from dp_erm_bench.runner import progress
from dp_erm_bench.runner.progress import Progress


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_line_per_twentieth_on_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Progress("study", True, 1000) as shown:
        shown.announce(0, 1000)
        for _ in range(1000):
            shown.advance(["ok"])
    found = lines(capsys)
    assert len(found) == 20
    assert found[0].startswith("study: 5 % (50 of 1000 trials, 0 failed")
    assert found[-1].startswith("study: 100 % (1000 of 1000")


def test_lines_keep_their_distance_but_the_last_comes(capsys):
    with Progress("study", True, 100) as shown:
        shown.announce(0, 100)
        for _ in range(100):
            shown.advance(["ok"])
    assert [line[:12] for line in lines(capsys)] == ["study: 100 %"]


def test_recorded_trials_count_as_done_and_more_rounds_raise_the_total(capsys):
    with Progress("study", True, 10) as shown:
        shown.announce(4, 6)
        assert (shown.done, shown.total) == (4, 10)
        shown.advance(["ok", "error", "killed"])
        shown.announce(0, 5)
        assert (shown.done, shown.total, shown.failed) == (7, 15, 2)


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(28, "full")])
def test_a_reader_that_is_gone_ends_no_sweep(monkeypatch, error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

    monkeypatch.setattr(progress.sys, "stderr", Gone())
    with Progress("study", True, 2) as shown:
        shown.announce(0, 2)
        shown.advance(["ok", "ok"])
    assert shown.done == 2


def test_switched_off_it_is_silent(capsys):
    with Progress("study", False, 3) as shown:
        shown.announce(0, 3)
        shown.advance(["ok"] * 3)
    assert lines(capsys) == []


def test_a_terminal_gets_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with Progress("study", True, 4) as shown:
        shown.announce(0, 4)
        shown.advance(["ok", "error"])
        shown.advance(["ok", "ok"])
    text = screen.getvalue()
    assert "study" in text and "4/4" in text and "1 failed" in text
    assert "%" not in text
