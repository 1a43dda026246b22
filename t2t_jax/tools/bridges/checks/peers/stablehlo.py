"""Translates with an exported search; needs jax, numpy and sentencepiece."""

import json
import runpy
import time
from pathlib import Path

import jax
import jax.export
import numpy as np

ROWS = 16  # sentences at a time


class Searches:
    """The exported programs of one beam width."""

    def __init__(self, folder: Path, beam: int):
        self.folder = folder
        self.about = about = json.loads((folder / "export.json").read_bytes())
        self.parameters = jax.device_put(dict(np.load(folder / about["parameters"])))
        self.files = {
            program["source"]: program["file"]
            for program in about["programs"]
            if program["beam"] == beam
        }
        self.longest = max(self.files)
        self.compiled: dict[int, jax.stages.Compiled] = {}

    def program(self, width: int) -> jax.stages.Compiled:
        """The program for sources of a width, compiled for `ROWS` of them."""
        if width not in self.compiled:
            content = (self.folder / self.files[width]).read_bytes()
            search = jax.jit(jax.export.deserialize(content).call)
            ints = jax.ShapeDtypeStruct((ROWS,), np.int32)
            source = jax.ShapeDtypeStruct((ROWS, width), np.int32)
            lowered = search.lower(self.parameters, source, ints, ints)
            self.compiled[width] = lowered.compile()
        return self.compiled[width]

    def run(self, sources: list, limits: list) -> dict:
        """Searches for all sources; lines of similar length together."""
        found: list[tuple] = [()] * len(sources)
        order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        widths = [self.width(len(sources[row])) for row in order]
        for width in set(widths):
            self.program(width)
        began = time.perf_counter()
        for width in sorted(set(widths)):
            same = [row for row, w in zip(order, widths, strict=True) if w == width]
            for first in range(0, len(same), ROWS):
                rows = same[first : first + ROWS]
                of_rows = self.batch(
                    width, [sources[row] for row in rows], limits, rows
                )
                for row, result in zip(rows, of_rows, strict=False):
                    found[row] = result
        seconds = time.perf_counter() - began
        return {
            "tokens": [tokens for tokens, _ in found],
            "scores": [score for _, score in found],
            "seconds": seconds,
        }

    def width(self, length: int) -> int:
        """The narrowest program for a source of a length."""
        return min(width for width in self.files if width >= length)

    def batch(self, width: int, sources: list, limits: list, rows: list) -> list[tuple]:
        """Returns tokens and score of each source; rows without a source are empty."""
        ids = np.zeros((ROWS, width), np.int32)
        length, limit = np.zeros(ROWS, np.int32), np.ones(ROWS, np.int32)
        for place, (row, source) in enumerate(zip(rows, sources, strict=True)):
            ids[place, : len(source)] = source
            length[place], limit[place] = len(source), limits[row]
        found = self.program(width)(self.parameters, ids, length, limit)
        found = {name: np.asarray(x) for name, x in found.items()}
        return [
            (tokens[:n].tolist(), float(score))
            for tokens, n, score in zip(
                *(found[name] for name in ("tokens", "length", "score")), strict=True
            )
        ]


def greedy(job: dict) -> dict:
    """Greedy search from ids."""
    return Searches(Path(job["model"]), 1).run(job["sources"], job["limits"])


def beam(job: dict) -> dict:
    """Beam search from text to text; the ids of the job are not used."""
    folder = Path(job["model"])
    searches = Searches(folder, job["beam"])
    about = searches.about
    described = {
        "kind": "sentencepiece",
        "special": [],
        "source_prefix": [],
        **{side: about[side]["tokenizer"] for side in ("source", "target")},
    }
    pieces = runpy.run_path(str(Path(__file__).with_name("pieces.py")))["Pieces"]
    text = pieces(folder, described)
    first, eos = about["source"]["first"], about["source"]["eos"]
    find = text.source.piece_to_id
    encoded = [[*first, *map(find, text.encode(line))] for line in job["lines"]]
    sources = [[*ids[: searches.longest - 1], eos] for ids in encoded]
    limits = [len(ids) + about["extra_length"] for ids in sources]
    found = searches.run(sources, limits)
    special = set(about["target"]["special"])
    name = text.target.id_to_piece
    texts = [
        text.decode([name(i) for i in tokens if i not in special])
        for tokens in found["tokens"]
    ]
    # A line without a visible character has no translation.
    texts = [
        " ".join(text.splitlines()) if line.strip() else ""
        for text, line in zip(texts, job["lines"], strict=True)
    ]
    return found | {"texts": texts}


TASKS = {"greedy": greedy, "beam": beam}
