"""The book: Sphinx over the pages of this folder. `make docs` builds it, and a warning is an error.

Nothing is fetched, neither when it is built nor when it is read.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import l2caf

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
# What the notebooks run in draws to memory, with one thread each, and shows no bars.
os.environ.update(MPLBACKEND="Agg", OMP_NUM_THREADS="1", TQDM_DISABLE="1", PYDEVD_DISABLE_FILE_VALIDATION="1")
# The kernels of notebooks import the same l2caf as this file.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(l2caf.__file__).parents[1]), os.environ.get("PYTHONPATH")])
)

project = "l2caf"
version = release = l2caf.__version__
copyright = "the l2caf authors, MIT licence"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_design", "commands", "docstrings", "llms", "mathtext", "modules"]
exclude_patterns = ["pictures", "_ext", "_static"]

# Links between pages and to headings are checked; types in signatures are those of torch and numpy for the most part.
nitpicky = True
nitpick_ignore_regex = [("py:(class|data|exc|meth|attr|func)", ".*"), ("py:obj", r"typing\..*")]
suppress_warnings = ["ref.python"]  # two classes of one short name in an annotation

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

# Every notebook runs from its first cell to its last whenever the book is built; one that fails stops the build.
nb_execution_mode = "force"
nb_execution_in_temp = True  # what a notebook writes stays out of this folder
nb_execution_timeout = 600  # seconds per cell, on a busy machine too
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # what libraries say of this machine

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # torch's own, of every forward
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
smartquotes = False  # two dashes before the name of an option are two dashes
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"l2caf {version}"
html_short_title = "See where a neural network looks: any PyTorch network, in a few lines of Python or one command."
html_math_renderer = "mathtext"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_sourcelink_suffix = ""
html_theme_options = {"navigation_with_keys": True}
