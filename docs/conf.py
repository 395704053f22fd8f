"""Sphinx configuration."""

import io
import re
import zlib
from html import escape

from matplotlib.figure import Figure

from involutive._version import __version__

project = "involutive"
author = "the authors of involutive"
version = release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "sphinx_design"]
html_theme = "sphinx_book_theme"
html_title = "involutive"
html_theme_options = {"navbar_persistent": []}  # one search field, not two
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "drawn"
exclude_patterns = ["_build", "jupyter_execute"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds per cell; learning on a busy machine
autodoc_typehints = "description"
autodoc_typehints_format = "short"
add_module_names = False
default_role = "code"  # single backticks in docstrings
python_maximum_signature_line_length = 72  # one argument per line beyond that


def as_restructured(app, what, name, obj, options, lines):
    """Docstrings write |x|², which reStructuredText would take for a substitution, and fences."""
    out, inside = [], False
    for line in lines:
        if line.strip().startswith("```"):
            inside = not inside
            if inside:
                out += [line.replace("```python", ".. code-block:: python"), ""]
        else:
            code = inside or line.lstrip().startswith((">>>", "..."))
            out.append("   " * inside + line if code else line.replace("|", "\\|"))
    lines[:] = out


def drawn(writer, node):
    """A formula as a drawing, so that the pages need no network and no TeX."""
    import matplotlib
    from docutils import nodes

    tex = " ".join(node.astext().split())
    figure = Figure(figsize=(0.01, 0.01))
    figure.text(0, 0, f"${tex}$", fontsize=12, color="#000000")
    page = io.StringIO()
    with matplotlib.rc_context({"mathtext.fontset": "stix", "svg.hashsalt": tex}):
        options = {"bbox_inches": "tight", "pad_inches": 0.04, "transparent": True}
        figure.savefig(page, format="svg", metadata={"Date": None}, **options)
    drawing = page.getvalue()[page.getvalue().index("<svg ") :]
    mark = f"m{zlib.crc32(tex.encode())}-"
    drawing = re.sub(r'(id="|"#|url\(#)', rf"\1{mark}", drawing).replace("#000000", "currentColor")
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(tex)}" ', 1)
    writer.body.append(f'<div class="formula" tabindex="0">{drawing}</div>')
    raise nodes.SkipNode


def short_types(app, doctree):
    """Types of arrays as they are written in the code, `Array`, and not where JAX defines them."""
    from docutils import nodes

    for node in list(doctree.findall(nodes.Text)):
        if "jaxlib." in node or "typing." in node:
            text = re.sub(r"jaxlib\._jax\.|typing\.", "", node.astext())
            node.parent.replace(node, nodes.Text(text))


def setup(app):
    """Connect the above."""
    app.connect("doctree-read", short_types)
    app.add_html_math_renderer("drawn", (drawn, None), (drawn, None))
    app.connect("autodoc-process-docstring", as_restructured)
