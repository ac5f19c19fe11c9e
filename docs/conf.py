"""Configuration of Sphinx; `make docs` builds the site into site/."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402

from dp_erm_bench import __version__  # noqa: E402

project = "dp_erm_bench"
author = copyright = "dp_erm_bench developers"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/.ipynb_checkpoints"]

autodoc_typehints = "none"
napoleon_use_rtype = False
default_role = "code"
myst_heading_anchors = 3
nb_execution_mode = os.environ.get("DP_ERM_BENCH_NOTEBOOKS", "cache")
nb_execution_cache_path = str(HERE.parent / ".pytest_cache" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
# Nothing is loaded from another host: no widgets, no formulas.
nb_ipywidgets_js = {}
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "navigation_depth": 2,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_title = f"dp_erm_bench {release}"

shutil.rmtree(HERE / "notebooks", ignore_errors=True)
shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks")
generate.write_pages(HERE / "generated")


def escape_docstring(app, what, name, obj, options, lines):
    """Escape the bars in the lines of a docstring, in place."""
    lines[:] = map(generate.escape_bars, lines)


def setup(app):
    """Have docstrings escaped before napoleon reads them."""
    app.connect("autodoc-process-docstring", escape_docstring, priority=1)
