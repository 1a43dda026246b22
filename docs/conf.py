"""The docs as a site: `python -m sphinx -W -n -b html docs docs/_build`.

The pages are the Markdown files of this folder, as they are read on GitHub. Four
things are changed when they are built: `<!-- generated: ... -->` is replaced by what
`site/generated.py` makes of the code, links out of this folder lead to pages of the
site, pictures that exist in a dark version follow the reader's choice, and pages get
the `KEYWORDS` that the search finds them by.
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
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "**/README.md"]
root_doc = "index"

html_theme = "furo"
html_title = f"t2t_jax {version}"
html_theme_options = {
    "source_repository": re.search(r"https://github\.com/\S+", generated.README)[0],
    "source_branch": "main",
    "source_directory": "docs/",
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "repository.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "site/scorer.js")
copybutton_selector = "div:not(.highlight-none, .highlight-text) > .highlight > pre"
copybutton_prompt_text = "$ "
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
# Words that a reader may search for and a page does not have.
KEYWORDS = {
    "bridges": "convert pretrained published ONNX",
    "fine-tuning": "fine tuning finetune finetuning custom own dataset adapt domain",
    "from-python": "custom training loop callback API library programmatic",
    "installing": "offline internet proxy requirements environment docker",
    "launching": "cluster distributed multi node nodes GPU GPUs torchrun",
    "planning": "OOM out of memory cost hours GPU",
    "real-text": "custom own dataset corpus",
    "recipes": "low resource small data ensemble",
    "runs": "wandb weights biases mlflow tensorboard tracker tracking experiment",
    "scaling": "multi node GPU GPUs FSDP tensor parallelism sharding",
    "serving": "REST API HTTP deployment production docker",
    "surviving": "restart resume crash preemption NaN divergence",
    "tutorials/team": "custom own data offline",
    "your-idea": "custom own loss model training loop plugin",
}
PICTURE = re.compile(
    r'<picture><source [^>]*srcset="([^"]+)">'
    r'<img alt="([^"]*)" src="([^"]+)"></picture>'
)
SHELL = re.compile(r"^```bash\n(?:(?!.*<<|```).*\n)+```", re.MULTILINE)
WIDTH = 100  # characters that a block holds on a screen of 1,400 pixels
FLAG = re.compile(r"<[^>]*>|(?<![\w-])--?[\w.]+")  # or a tag, which stays as it is
LINK = re.compile(r"\]\((?:\.\./)*(\.\./[^)#\s]+)(#[^)]*)?\)")
NOTEBOOK = re.compile(r"\.\./notebooks/(\w+)\.(?:py|ipynb)")


def on_the_site(app, docname: str, source: list[str]) -> None:
    """Turns a page as it is on GitHub into one of the site."""
    text = generated.fill(source[0])
    text = PICTURE.sub(_picture, text)
    up = "../" * docname.count("/")
    text = LINK.sub(lambda m: _link(m, up), text)
    text = SHELL.sub(lambda m: "\n".join(map(narrow, m[0].split("\n"))), text)
    if words := KEYWORDS.get(docname):
        listed = ", ".join(words.split())
        text = f'---\nmyst: {{html_meta: {{keywords: "{listed}"}}}}\n---\n{text}'
    source[0] = text


def narrow(line: str) -> str:
    """Continues a command that is too wide in other lines; moves its comment above."""
    if len(line) <= WIDTH:
        return line
    if match := re.fullmatch(r"( *)([^#\s][^#]*?)  +(# .*)", line):
        return f"{match[1]}{match[3]}\n{narrow(match[1] + match[2])}"
    ends = [m.start() for m in re.finditer(r" (?=-|\| |&& |[<>])", line[:WIDTH])]
    whole = [n for n in ends if not any(line[:n].count(q) % 2 for q in "'\"")]
    if not whole or not line[: whole[-1]].strip():
        return line
    rest = f"    {line[whole[-1] :].lstrip()}"
    return f"{line[: whole[-1]]} \\\n{narrow(rest)}"


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


def arrange(app, pagename: str, template, context: dict, doctree) -> None:
    """Folds the groups of the side bar, but for the page's own; keeps flags whole."""
    from bs4 import BeautifulSoup

    context["body"] = FLAG.sub(
        lambda m: m[0] if m[0][0] == "<" else f'<span class="flag">{m[0]}</span>',
        context.get("body", ""),
    )
    if pagename.startswith("_notebooks/"):  # made of files elsewhere
        context["page_source_suffix"] = ""
    tree = context.get("furo_navigation_tree", "")
    soup = BeautifulSoup(tree, "html.parser")
    captions = soup.find_all("p", class_="caption")
    for caption in captions:
        entries = caption.find_next_sibling("ul")
        group = caption.wrap(soup.new_tag("details"))
        caption.name = "summary"
        group.append(entries.extract())
        first = pagename == root_doc and caption is captions[0]
        if first or entries.find(class_="current"):
            group["open"] = ""
    context["furo_navigation_tree"] = str(soup)


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
    app.connect("html-page-context", arrange, priority=900)  # after the theme's
    app.connect("builder-inited", lambda app: notebook_pages.write())
    app.connect("build-finished", lambda app, error: error or live.write(app.outdir))
