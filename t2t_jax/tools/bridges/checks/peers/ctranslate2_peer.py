"""Runs an exported CTranslate2 model; needs ctranslate2 and sentencepiece alone.

The job names a `model` folder, its `tokenizer` (what its own pieces.py takes, if any),
`target_prefix` (pieces that every translation begins with) and `threads`. Its tasks:

  greedy: the `tokens` of translations of `sources` (ids with EOS), EOS included, at
    most as many as `limits` says.
  beam: the same from `lines` of text with `beam` and `alpha`; `texts` and `scores` too.
    Without a `tokenizer`, `sources` are translated, and `texts` are null.
  log_probs: the log-probabilities of the tokens of `targets` (ids with EOS).

`seconds` is the time of tokenizing and translating.
"""

import json
import runpy
import time
from pathlib import Path

import ctranslate2

ROWS = 32  # sentences in a batch
# CTranslate2 ends a sentence when `beam` hypotheses have ended; we, when no better
# one is possible. With twice as many, hardly any translation differs.
PATIENCE = 2


class Model:
    """An exported model on the CPU, with the names of its tokens."""

    def __init__(self, job):
        folder = Path(job["model"])
        shared = folder / "shared_vocabulary.json"
        self.source, self.target = (
            json.loads((shared if shared.exists() else path).read_text("utf-8"))
            for path in (
                folder / "source_vocabulary.json",
                folder / "target_vocabulary.json",
            )
        )
        self.ids = {piece: i for i, piece in enumerate(self.target)}
        self.end = json.loads((folder / "config.json").read_text("utf-8"))["eos_token"]
        self.prefix = job.get("target_prefix") or []
        self.translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            inter_threads=1,
            intra_threads=job.get("threads", 0),
        )

    def pieces(self, sources):
        """Ids with EOS as pieces without; CTranslate2 adds EOS itself."""
        return [[self.source[i] for i in ids[:-1]] for ids in sources]

    def translate(self, pieces, limit, **options):
        """Translates pieces to (pieces with EOS if it came, score) of the best."""
        results = self.translator.translate_batch(
            pieces,
            [self.prefix] * len(pieces) if self.prefix else None,
            max_batch_size=ROWS,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            return_end_token=True,  # its length counts, as in our length penalty
            return_scores=True,
            **options,
        )
        return [(result.hypotheses[0], result.scores[0]) for result in results]

    def greedy(self, job):
        limits = job["limits"]
        # A shorter limit only cuts a greedy translation off.
        results = self.translate(self.pieces(job["sources"]), max(limits), beam_size=1)
        rows = [row[:limit] for (row, _), limit in zip(results, limits, strict=True)]
        return {"tokens": [[self.ids[piece] for piece in row] for row in rows]}

    def beam(self, job):
        text = None
        if job["tokenizer"]:
            # The export's own copy, which its users run.
            exported = runpy.run_path(str(Path(job["model"]) / "pieces.py"))
            text = exported["Pieces"](job["model"], job["tokenizer"])
        pieces = self.pieces(job["sources"])
        if text:
            cuts = [len(row) for row in pieces]
            pieces = [text.encode(line) for line in job["lines"]]
            pieces = [row[:cut] for row, cut in zip(pieces, cuts, strict=True)]
        # The limit is one of the call, so lines of one limit are translated together.
        groups = {}
        for row, (line, limit) in enumerate(
            zip(job["lines"], job["limits"], strict=True)
        ):
            if line.strip():
                groups.setdefault(limit, []).append(row)
        best = [([], 0.0)] * len(pieces)
        options = {"beam_size": job["beam"], "length_penalty": job["alpha"]}
        options["patience"] = PATIENCE
        for limit, rows in groups.items():
            results = self.translate([pieces[row] for row in rows], limit, **options)
            for row, result in zip(rows, results, strict=True):
                best[row] = result
        rows = [[piece for piece in row if piece != self.end] for row, _ in best]
        return {
            "texts": [text.decode(row) for row in rows] if text else None,
            "scores": [score for _, score in best],
            "tokens": [[self.ids[piece] for piece in row] for row, _ in best],
        }

    def log_probs(self, job):
        targets = [[self.target[i] for i in ids[:-1]] for ids in job["targets"]]
        results = self.translator.score_batch(
            self.pieces(job["sources"]), targets, max_batch_size=ROWS
        )
        return {"log_probs": [result.log_probs for result in results]}


def run(job):
    model = Model(job)
    began = time.perf_counter()
    result = getattr(model, job["task"])(job)
    seconds = time.perf_counter() - began
    return result | {"seconds": seconds}


TASKS = dict.fromkeys(("greedy", "beam", "log_probs"), run)
