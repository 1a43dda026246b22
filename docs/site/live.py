"""The explorer on the front page: an explanation of a tiny model's translations.

Only its data are stored, in docs/explorer.json. Each build of the site makes the page
of it, with the viewing code as it is then. To store another explanation:

    python -m t2t_jax explain --workdir=runs/tiny --output=page.html --input=lines.en
    python docs/site/live.py page.html
"""

import base64
import gzip
import json
import re
import sys
from pathlib import Path

STORED = Path(__file__).parents[1] / "explorer.json"  # as in a page: packed, by name
PART = re.compile(
    r'<script type="application/octet-stream" id="([\w-]+)">([^<]*)</script>'
)
FRAME = """\
```{raw} html
<iframe class="explorer" src="explorer.html" loading="lazy"
  title="The explorer: translations of a tiny model, seen from the inside"></iframe>
<p><a href="explorer.html">The explorer on a page of its own</a></p>
```"""


def frame() -> str:
    """The explorer as Markdown of the front page; empty if none is stored."""
    return FRAME if STORED.exists() else ""


def write(outdir: Path) -> None:
    """Writes explorer.html beside the front page."""
    if not STORED.exists():
        return
    from t2t_jax.tools.pages.page import Payload, page

    packed = json.loads(STORED.read_text())
    content, *blobs = (gzip.decompress(base64.b64decode(part)) for part in packed)
    payload = Payload(json.loads(content))
    payload.blobs = blobs
    (Path(outdir) / "explorer.html").write_text(page(payload), encoding="utf-8")


def store(html: str, file: Path = STORED) -> None:
    """Stores the document and the arrays of a page that `explain` has written."""
    parts = dict(PART.findall(html))
    blobs = sum(name.startswith("blob-") for name in parts)
    packed = [parts["payload"], *(parts[f"blob-{n}"] for n in range(blobs))]
    file.write_text(json.dumps(packed, indent=0) + "\n")


if __name__ == "__main__":
    store(Path(sys.argv[1]).read_text(encoding="utf-8"))
