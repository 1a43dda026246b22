"""Translates HTML files, and shows each next to its translation in one file.

    python -m benchmarks.markup_pages --workdir=DIR --pages=FOLDER --html=pages.html

For a person to look at: what survived, and where tags landed. Checks of each page:
every tag of the source is in the translation as often, and its scripts and styles are
the same. Pages are read as they are, without what they refer to.
"""

import html
import re
import time
from collections import Counter
from pathlib import Path

from absl import flags

from benchmarks import measuring, run
from t2t_jax.commands.flags import ENSEMBLE, define_workdir_flags, workdirs_of
from t2t_jax.data.text_files import read_text
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.decoding.preserving import Report
from t2t_jax.io.errors import UserError
from t2t_jax.io.output_files import write_file

PLACED = "elements", "pieces", "split", "emptied", "unpaired"  # of the report
FRAME = '<iframe sandbox="" style="width:49%;height:40em" srcdoc="{}"></iframe>'


def tags(page: str) -> Counter[str]:
    """The tags of a page, as they are written."""
    return Counter(re.findall(r"<[a-zA-Z/!?][^>]*>", page))


def define_flags():
    define_workdir_flags(ENSEMBLE)
    flags.DEFINE_string("pages", None, "Folder of HTML files.", required=True)
    flags.DEFINE_integer("most", 20, "Pages to translate.", 1)
    flags.DEFINE_string("html", "", "HTML file to write.")
    measuring.define_flags(rounds=None)


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    files = sorted(Path(args.pages).rglob("*.htm*"))[: args.most]
    if not files:
        raise UserError(f"--pages={args.pages} has no HTML file")
    translator = Translator.load(workdirs_of(args), args.checkpoint, args.dtype)
    rows: list[dict] = []
    page_lines = ["<!DOCTYPE html><meta charset=utf-8><title>Translated pages</title>"]
    for file in files:
        page, report, began = read_text(file), Report(), time.monotonic()
        options = {"markup": "html", "split": "sentences", "placeholders": True}
        options["report"] = report
        translated = translator.translate([page], warn=False, **options)[0].text
        lost = tags(page) - tags(translated)
        added = tags(translated) - tags(page)
        placed = {name: report.markup[name] for name in PLACED}
        counts = {"lost": lost.total(), "added": added.total(), **placed}
        counted = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        seconds = time.monotonic() - began
        all_tags = tags(page).total()
        rows.append({"page": file.name, "tags": all_tags, "seconds": seconds} | counts)
        frames = (
            FRAME.format(html.escape(document)) for document in (page, translated)
        )
        page_lines += [f"<h2>{html.escape(file.name)}</h2><p>{counted}</p>", *frames]
    if args.html:
        write_file(Path(args.html), "\n".join(page_lines).encode())
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
