"""What a browser reads out of a page."""

import base64
import gzip
import re

PACKED = re.compile(r'<script[^>]* id="([\w-]+)">([^<]*)<')


def blobs_of(page: str) -> dict[str, bytes]:
    """The bytes of the document, `payload`, and of each blob, by the element's id."""
    return {
        name: gzip.decompress(base64.b64decode(data))
        for name, data in PACKED.findall(page)
    }
