"""Captions as files: plain text, and LaTeX with a figure environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dp_erm_bench.paths import write_atomic

MATH = re.compile(r"(?<!\\)\$.*?(?<!\\)\$")
ESCAPED = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%#_{}$"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
)
FLOAT = """\\begin{{{kind}}}[tb]
  \\centering
  \\includegraphics[width=\\{width}]{{{stem}}}
  \\caption{{{caption}}}
  \\label{{fig:{label}}}
\\end{{{kind}}}
"""


@dataclass
class Making:
    """What is being made of a table.

    Attributes
    ----------
    table : str
        The digest of the table, empty if nobody tells it; pictures note it.
    captions : dict of str to str, or None
        If there is one, captions are put into it by the name of their picture, and
        nothing is drawn or written.
    """

    table: str = ""
    captions: dict[str, str] | None = None


_making = ContextVar("making", default=Making())  # noqa: B039 (never changed in place)


def now() -> Making:
    """Return what is being made."""
    return _making.get()


@contextmanager
def making(table: str = "", captions: dict[str, str] | None = None) -> Iterator[None]:
    """Have pictures note the digest of their table, or have their captions only."""
    token = _making.set(Making(table, captions))
    try:
        yield
    finally:
        _making.reset(token)


def mark(table: str, stem: str) -> str:
    """Return what a picture of a name, drawn from a table of a digest, notes.

    It tells damage and mistakes: anyone can compute it.
    """
    return sha256(f"{table} {stem}".encode()).hexdigest()


def write_text(path: Path, text: str) -> Path:
    """Write a text file at once, and return its path."""
    if now().captions is None:
        write_atomic(path, lambda file: file.write(text.encode()))
    return path


def plain(caption: str) -> str:
    """Return a caption as a file of text: a dollar sign that is none of a formula."""
    return caption.replace(r"\$", "$").rstrip() + "\n"


def latex(caption: str, stem: str, wide: bool = False) -> str:
    r"""Return a figure environment with a caption in which only formulas are LaTeX.

    Parameters
    ----------
    caption : str
        Formulas stand between dollar signs; others are written ``\$``.
    stem : str
        The name of the picture without its suffix.
    wide : bool
        Whether it is as wide as the page.
    """
    end, parts = 0, []
    for formula in MATH.finditer(caption):
        parts += [escaped(caption[end : formula.start()]), formula[0]]
        end = formula.end()
    text = "".join([*parts, escaped(caption[end:])]).strip()
    return FLOAT.format(
        kind="figure*" if wide else "figure",
        width="textwidth" if wide else "columnwidth",
        stem=stem,
        label=re.sub(r"[^\w.:-]", "-", stem),
        caption=text.replace("\n", "\n    "),
    )


def escaped(text: str) -> str:
    """Return a text as LaTeX has to read it."""
    return text.replace(r"\$", "$").translate(ESCAPED)
