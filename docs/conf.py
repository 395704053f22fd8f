"""Sphinx configuration."""

from involutive._version import __version__

project = "involutive"
version = release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "myst_nb"]
html_theme = "sphinx_book_theme"
html_title = "involutive"
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
autodoc_typehints = "description"


def plain_bars(app, what, name, obj, options, lines):
    """Docstrings write |x|² and |det Df|, which reStructuredText would take for substitutions."""
    lines[:] = [line.replace("|", "\\|") for line in lines]


def setup(app):
    """Connect the above."""
    app.connect("autodoc-process-docstring", plain_bars)
