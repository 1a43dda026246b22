"""A page: its payload comes back, hostile text stays text, and it loads nothing."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from t2t_jax.tools.pages import page as pages
from t2t_jax.tools.pages.page import Payload, bundle, in_order, page
from tests.viewing.pages import blobs_of

FOLDER = pages.resources.files("t2t_jax.tools.pages") / "page"
LARGEST = 75_000  # bytes of a page without data
HOSTILE = (
    "</script><script>alert(1)</script><!-- ]]> \u2028 \u2029 & \" ' {{script}} \\1"
)


def test_the_document_has_five_digits_and_no_infinity():
    content = {"a": np.float32(1 / 3), "b": (-np.inf, np.int64(123456789)), "c": True}
    document = json.loads(blobs_of(page(Payload(content)))["payload"])
    assert document == {"a": 0.33333, "b": [None, 123456789], "c": True}


def test_hostile_text_stays_text():
    calm = page(Payload({"title": "calm", "text": "calm"}))
    hostile = page(Payload({"title": HOSTILE, "text": HOSTILE}))
    tags = re.compile(r"</?\w[^>]*>|<!")
    assert len(tags.findall(hostile)) == len(tags.findall(calm))
    assert hostile.count(html.escape(HOSTILE)) == calm.count(">calm<") == 2
    assert json.loads(blobs_of(hostile)["payload"])["text"] == HOSTILE


def test_a_page_loads_nothing_and_is_small():
    text = page(Payload({"title": "t"}))
    blobs = blobs_of(text)
    program = blobs["packed-program"].decode()
    assert 'modules["main.js"] =' in program
    for word in ("http:", "https:", "@import", "import(", "fetch(", "url(", "src="):
        for part in (text, program, blobs["packed-style"].decode()):
            assert word not in part
    assert "default-src 'none'" in text  # and the browser holds it to that
    assert len(text.encode()) <= LARGEST


def modules():
    return {
        str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8")
        for path in FOLDER.rglob("*.js")
    }


def test_every_import_names_an_export():
    sources = modules()
    imports = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
    for name, source in sources.items():
        # One form of import, so that the bundle leaves none behind.
        assert len(imports.findall(source)) == len(re.findall(r"^import", source, re.M))
        for names, imported in imports.findall(source):
            target = (FOLDER / name).parent.joinpath(imported).resolve()
            exported = re.findall(
                r"^export (?:(?:async )?function|const|class) (\w+)",
                sources[str(target.relative_to(FOLDER.resolve()))],
                re.MULTILINE,
            )
            names = {n.strip() for n in names.split(",")} - {""}
            assert names <= {*exported}, name
            used = {*re.findall(r"\w+", imports.sub("", source))}
            assert names <= used, f"{name} imports what it does not use"


def test_modules_come_once_after_what_they_import():
    mains = [name for name in modules() if name.endswith("main.js")]
    mains.append("loader.js")
    used = set()
    for main in mains:
        order = in_order(main)
        assert len(order) == len({*order})
        assert order[-1] == main
        if main != "loader.js":
            assert order.index("common/dom.js") < order.index("common/text.js")
        assert not re.search(r"^(import|export)\b", bundle(main), re.MULTILINE)
        used.update(order)
    assert used == {*modules()}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
@pytest.mark.parametrize("main", ["main.js", "doctor/main.js", "translate/main.js"])
def test_the_script_is_javascript(tmp_path, main):
    script = tmp_path / "page.mjs"
    script.write_text(bundle(main), encoding="utf-8")
    process = subprocess.run(
        ["node", "--check", str(script)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
