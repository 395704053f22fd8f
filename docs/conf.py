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
