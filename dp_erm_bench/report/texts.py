"""Captions as files: plain text, and LaTeX with a figure environment."""

from __future__ import annotations

import re
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


def write_text(path: Path, text: str) -> Path:
    """Write a text file at once, and return its path."""
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
