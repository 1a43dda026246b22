"""Runs a package of Argos Translate as its version 1.11 does, sentence by sentence.

Needs ctranslate2 and sentencepiece alone. The job names a `model` folder, which has the
package; the tasks are `greedy` and `beam`, as in ctranslate2_peer.py.
"""

import runpy
import tempfile
import zipfile
from pathlib import Path

import sentencepiece

MODEL = runpy.run_path(str(Path(__file__).with_name("ctranslate2_peer.py")))["Model"]


def run(job):
    (file,) = Path(job["model"]).glob("*.argosmodel")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
        (package,) = Path(folder).iterdir()
        model = MODEL({**job, "model": str(package / "model")})
        if job["task"] == "greedy":
            return model.greedy(job)
        return beam(model, str(package / "sentencepiece.model"), job)


def beam(model, tokenizer, job):
    processor = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
    results = model.translator.translate_batch(
        [processor.encode(line, out_type=str) for line in job["lines"]],
        replace_unknowns=True,
        max_batch_size=32,
        batch_type="tokens",
        beam_size=job["beam"],
        num_hypotheses=1,
        length_penalty=job["alpha"],
        return_scores=True,
    )
    rows = [result.hypotheses[0] for result in results]
    texts = [processor.decode_pieces(row) for row in rows]
    texts = [text.replace("\u2581", " ").replace("_", " ") for text in texts]
    return {
        "texts": [text.removeprefix(" ") for text in texts],
        "scores": [result.scores[0] for result in results],
        "tokens": [[model.ids[piece] for piece in row] for row in rows],
    }


TASKS = {"greedy": run, "beam": run}
