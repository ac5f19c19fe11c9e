"""The command line: its commands and groups, and what a terminal may show."""

import re

COMMANDS = {
    "check": "check",
    "collect": "app",
    "compare": "plots",
    "export": "plots",
    "list": "listing",
    "look": "look",
    "plot": "plots",
    "report": "app",
    "tune": "app",
}
"""The modules that hold the commands' functions, each called `<name>_command`."""

GROUPS = (
    *("dataset", "algorithm", "problem", "loss", "penalty", "constraint"),
    *("calibration", "runner", "experiment"),
)
AUTO = ("loss", "penalty")
"""Groups whose choice may be left to the dataset."""

CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""What a terminal obeys or does not show: controls, marks of direction, surrogates."""


def visible(text: str) -> str:
    """Return a text with all that a terminal would obey, or hide, spelled out."""
    return CONTROLS.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
