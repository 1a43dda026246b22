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

    def program(self, width: int) -> jax.stages.Compiled:
        """The program for sources of a width, compiled for `ROWS` of them."""
        content = (self.folder / self.files[width]).read_bytes()
        search = jax.jit(jax.export.deserialize(content).call)
        ints = jax.ShapeDtypeStruct((ROWS,), np.int32)
        source = jax.ShapeDtypeStruct((ROWS, width), np.int32)
        return search.lower(self.parameters, source, ints, ints).compile()

    def run(self, sources: list, limits: list) -> dict:
        """Searches for all sources; lines of similar length together."""
        tokens, scores = [[]] * len(sources), [0.0] * len(sources)
        rows_of: dict[int, list[int]] = {}
        for row in sorted(range(len(sources)), key=lambda row: len(sources[row])):
            narrowest = min(width for width in self.files if width >= len(sources[row]))
            rows_of.setdefault(narrowest, []).append(row)
        programs = {width: self.program(width) for width in rows_of}
        began = time.perf_counter()
        for width, all_rows in rows_of.items():
            for start in range(0, len(all_rows), ROWS):
                rows = all_rows[start : start + ROWS]
                # Rows without a source are empty.
                ids = np.zeros((ROWS, width), np.int32)
                length, limit = np.zeros(ROWS, np.int32), np.ones(ROWS, np.int32)
                for place, row in enumerate(rows):
                    ids[place, : len(sources[row])] = sources[row]
                    length[place], limit[place] = len(sources[row]), limits[row]
                outputs = programs[width](self.parameters, ids, length, limit)
                outputs = {name: np.asarray(x) for name, x in outputs.items()}
                for place, row in enumerate(rows):
                    end = outputs["length"][place]
                    tokens[row] = outputs["tokens"][place, :end].tolist()
                    scores[row] = float(outputs["score"][place])
        seconds = time.perf_counter() - began
        return {"tokens": tokens, "scores": scores, "seconds": seconds}


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
    source_prefix, eos = about["source"]["first"], about["source"]["eos"]
    find = text.source.piece_to_id
    encoded = [[*source_prefix, *map(find, text.encode(line))] for line in job["lines"]]
    sources = [[*ids[: searches.longest - 1], eos] for ids in encoded]
    limits = [len(ids) + about["extra_length"] for ids in sources]
    outputs = searches.run(sources, limits)
    special = set(about["target"]["special"])
    name = text.target.id_to_piece
    texts = [
        text.decode([name(i) for i in tokens if i not in special])
        for tokens in outputs["tokens"]
    ]
    # A line without a visible character has no translation.
    texts = [
        " ".join(text.splitlines()) if line.strip() else ""
        for text, line in zip(texts, job["lines"], strict=True)
    ]
    return outputs | {"texts": texts}


TASKS = {"greedy": greedy, "beam": beam}
