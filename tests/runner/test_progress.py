import io
import time

import pytest

from dp_erm_bench.runner import session
from dp_erm_bench.runner.session import Progress


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_pipe_gets_a_line_at_the_end_and_not_one_per_trial(capsys):
    with Progress("study", True, 100) as shown:
        shown.announce(0, 100)
        for _ in range(100):
            shown.advance(["ok"])
    (line,) = lines(capsys)
    assert line.startswith("study: 100 % (100 of 100 trials, 0 failed, 0 s, 0 s left)")


def test_recorded_trials_count_as_done_and_more_rounds_raise_the_total(capsys):
    with Progress("study", True, 10) as shown:
        shown.announce(4, 10)
        assert (shown.done, shown.total) == (4, 10)
        shown.advance(["ok", "error", "killed"])
        shown.announce(7, 15)
        assert (shown.done, shown.total, shown.failed) == (7, 15, 2)


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(28, "full")])
def test_a_reader_that_is_gone_ends_no_sweep(monkeypatch, error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

    monkeypatch.setattr(session.sys, "stderr", Gone())
    with Progress("study", True, 2) as shown:
        shown.announce(0, 2)
        shown.advance(["ok", "ok"])
    assert shown.done == 2


def test_switched_off_it_is_silent(capsys):
    with Progress("study", False, 3) as shown:
        shown.announce(0, 3)
        shown.advance(["ok"] * 3)
    assert lines(capsys) == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with Progress("study", True, 4) as shown:
        shown.announce(0, 4)
        shown.advance(["ok", "error"])
        shown.advance(["ok", "ok"])
    text = screen.getvalue()
    assert "study" in text and "4/4" in text and "1 failed" in text
    assert "%" not in text


@pytest.mark.parametrize(
    ("name", "shown_as"),
    [
        ("[bold]a", "[bold]a"),
        ("[/red]", "[/red]"),
        ("a\x1b]0;b\nc", "a\\x1b]0;b\\nc"),
        ("\u202ea", "\\u202ea"),
    ],
)
@pytest.mark.parametrize("screen", [Terminal, io.StringIO])
def test_a_name_is_shown_as_it_is_and_no_control_of_it(
    monkeypatch, screen, name, shown_as
):
    text = screen()
    monkeypatch.setattr("sys.stderr", text)
    with Progress(name, True, 1) as shown:
        shown.announce(0, 1)
        shown.advance(["ok"])
    assert shown_as in text.getvalue()
    assert "\x1b]" not in text.getvalue() and "\u202e" not in text.getvalue()


def test_a_log_has_a_line_soon_though_no_trial_has_ended(capsys, monkeypatch):
    monkeypatch.setattr(session, "FIRST", 0.05)
    with Progress("study", True, 8) as shown:
        shown.announce(0, 8)
        time.sleep(0.8)
    (line,) = lines(capsys)
    assert line.startswith("study: 0 % (0 of 8 trials, 0 failed, ")
    assert line.endswith(" s, time left not known yet)")


def test_a_log_has_a_line_again_and_its_estimate_is_measured(capsys, monkeypatch):
    monkeypatch.setattr(session, "FIRST", 0.05)
    monkeypatch.setattr(session, "PAUSE", 0.2)
    with Progress("study", True, 1000) as shown:
        shown.announce(0, 1000)
        shown._start -= 10.0
        shown.advance(["ok"] * 10)
        time.sleep(1.2)
    found = lines(capsys)
    assert 3 <= len(found) <= 6
    seconds = [int(line.split(" s left")[0].split()[-1]) for line in found]
    # Ten trials took 10 s: 990 take 990 s, and a little more.
    assert all(990 <= one <= 1150 for one in seconds)


def test_the_first_line_counts_from_the_start_of_the_run(capsys, monkeypatch):
    monkeypatch.setattr(session, "FIRST", 5.0)
    with Progress("study", True, 8, begun=time.monotonic() - 5.0) as shown:
        shown.announce(2, 8)
        time.sleep(0.9)
    assert lines(capsys)[0].startswith("study: 25 % (2 of 8")


def test_what_takes_long_before_the_first_trial_is_said(capsys):
    with session.repeat_calls(
        lambda: session.print_to_stderr("study: reading data, planning"), 0.05
    ):
        time.sleep(0.3)
    with session.repeat_calls(
        lambda: session.print_to_stderr("other: reading data, planning"), 0.05
    ):
        pass
    assert lines(capsys) == ["study: reading data, planning"]


def test_reasons_are_listed_with_their_numbers_and_the_rest_is_counted():
    messages = [f"reason {n}\ntraceback" for n in range(20) for _ in range(n + 1)]
    told = list(session.list_reasons("error", 500, messages))
    assert told[:2] == ["error: 500 trials", "  20 x reason 19"]
    shown = sum(range(13, 21))
    assert told[2 + session.SHOWN - 1 :] == [
        f"  and {210 - shown} more",
        f"  and {500 - 210} whose reasons were not read",
    ]
    told = list(session.list_reasons("killed", 1, ["it died"]))
    assert told == ["killed: 1 trial", "  1 x it died"]
