"""The docs as a site: `python -m sphinx -W -n -b html docs docs/_build`.

The pages are the Markdown files of this folder, as they are read on GitHub. Three
things are changed when they are built: `<!-- generated: ... -->` is replaced by what
`site/generated.py` makes of the code, links out of this folder lead to pages of the
site, and pictures that exist in a dark version follow the reader's choice.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "site"), str(ROOT)]

import generated  # noqa: E402
import live  # noqa: E402
import notebook_pages  # noqa: E402

import t2t_jax  # noqa: E402

project = "t2t_jax"
author = "the authors of t2t_jax"
version = release = t2t_jax.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/README.md"]
root_doc = "index"

html_theme = "furo"
html_title = "t2t_jax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
smartquotes_action = "qe"  # not dashes: docstrings name --flags
highlight_language = "none"  # of blocks without a language: trees, formulas, outputs

myst_heading_anchors = 4  # as GitHub makes them
myst_enable_extensions = ["dollarmath"]  # of the notebooks
html_math_renderer = "mathml"

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "__init__, __new__"}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # types are in the signature, and shorter there
# Types that have no page here: of other libraries, of which nothing is fetched, and of
# parts that only the package itself makes.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!t2t_jax\b).*"),
    (
        r"py:class",
        r"t2t_jax\.(data|decoding|model|search|tools\.pages|workdir)\..*",
    ),
]
# Attributes of one name in two classes: Sphinx looks for a link where none is meant.
suppress_warnings = ["ref.python"]

# Files outside of this folder that have a page on the site.
PAGES = {
    "../README.md": "index.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../launch/kubernetes/README.md": "kubernetes.md",
}
PICTURE = re.compile(
    r'<picture><source [^>]*srcset="([^"]+)">'
    r'<img alt="([^"]*)" src="([^"]+)"></picture>'
)
LINK = re.compile(r"\]\((?:\.\./)*(\.\./[^)#\s]+)(#[^)]*)?\)")
NOTEBOOK = re.compile(r"\.\./notebooks/(\w+)\.(?:py|ipynb)")


def on_the_site(app, docname: str, source: list[str]) -> None:
    """Turns a page as it is on GitHub into one of the site."""
    text = generated.fill(source[0])
    text = PICTURE.sub(_picture, text)
    up = "../" * docname.count("/")
    source[0] = LINK.sub(lambda m: _link(m, up), text)


def _picture(match: re.Match) -> str:
    dark, meaning, light = match.groups()
    return "\n".join(
        f"```{{image}} {file}\n:alt: {meaning}\n:class: only-{theme}\n```\n"
        for file, theme in ((light, "light"), (dark, "dark"))
    )


def _link(match: re.Match, up: str) -> str:
    target, anchor = match[1], match[2] or ""
    page = PAGES.get(target) or NOTEBOOK.sub(r"_notebooks/\1.md", target)
    return match[0] if page == target else f"]({up}{page}{anchor})"


def without_aliases(app, what, name, thing, skip, options) -> bool | None:
    """Skips a named tuple's fields, which its docstring describes."""
    return type(thing).__name__ == "_tuplegetter" or None


def separate_names(app, what, name, thing, options, lines: list[str]) -> None:
    """Gives each of several names in one line of `Attributes` a line of its own.

    Sphinx would take all but the last for a type.
    """
    several = re.compile(r"^:ivar (\w+(?:, \w+)+): (.*(?:\n +.*)*)", re.MULTILINE)

    def separate(match: re.Match) -> str:
        names = match[1].split(", ")
        return "\n".join(f":ivar {each}: {match[2]}" for each in names)

    lines[:] = several.sub(separate, "\n".join(lines)).split("\n")


def name_types(app, what, name, thing, options, signature, returns):
    """Writes two types by their names, not as all that they may be."""
    for text, union in (
        ("Weight", r"[\w.~]*Array \| [\w.~]*Rounded(?: \| [\w.~]+)*Collected"),
        ("OptState", r"[\w.~]*Array \| [\w.~]*ndarray .*ArrayTree\]"),
    ):
        signature, returns = (
            s and re.sub(union, text, s) for s in (signature, returns)
        )
    return signature, returns


def formula(writer, node) -> None:
    """Writes a formula as MathML, which browsers draw without a script."""
    from docutils import nodes
    from docutils.utils.math.latex2mathml import tex2mathml

    text = node.astext().replace(r"\dots", r"\ldots")  # the only one it does not know
    writer.body.append(tex2mathml(text, as_block=node.tagname == "math_block"))
    raise nodes.SkipNode


def setup(app) -> None:
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("autodoc-process-docstring", separate_names, 501)  # after napoleon
    app.connect("autodoc-process-signature", name_types)
    app.connect("source-read", on_the_site)
    app.connect("builder-inited", lambda app: notebook_pages.write())
    app.connect("build-finished", lambda app, error: error or live.write(app.outdir))
