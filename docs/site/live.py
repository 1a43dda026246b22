"""The explorer on the front page: an explanation of a tiny model's translations.

Only its payload is stored, in docs/explorer/. Each build of the site makes the page of
it, with the viewing code as it is then. To store another explanation:

    python -m t2t_jax explain --workdir=runs/tiny --output=page.html --input=lines.en
    python docs/site/live.py page.html
"""

import base64
import gzip
import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "explorer"
CONTENT, BLOBS = "payload.json", "blobs.json"
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
    return FRAME if (FOLDER / CONTENT).exists() else ""


def write(outdir: Path) -> None:
    """Writes explorer.html beside the front page."""
    if not (FOLDER / CONTENT).exists():
        return
    from t2t_jax.viewing.page import page
    from t2t_jax.viewing.payload import Payload

    payload = Payload(json.loads((FOLDER / CONTENT).read_text(encoding="utf-8")))
    blobs = json.loads((FOLDER / BLOBS).read_text())
    payload.blobs = [gzip.decompress(base64.b64decode(blob)) for blob in blobs]
    (Path(outdir) / "explorer.html").write_text(page(payload), encoding="utf-8")


def store(html: str, folder: Path = FOLDER) -> None:
    """Stores the payload of a page that `explain` has written."""
    parts = dict(PART.findall(html))
    content = json.loads(gzip.decompress(base64.b64decode(parts.pop("payload"))))
    text = json.dumps(content, ensure_ascii=False, indent=1)
    count = sum(name.startswith("blob-") for name in parts)
    blobs = [parts[f"blob-{number}"] for number in range(count)]
    folder.mkdir(exist_ok=True)
    (folder / CONTENT).write_text(f"{text}\n", encoding="utf-8")
    (folder / BLOBS).write_text(json.dumps(blobs, indent=0) + "\n")


if __name__ == "__main__":
    store(Path(sys.argv[1]).read_text(encoding="utf-8"))
