"""Text without a source: lines, documents, blocks, and scores by themselves."""

import dataclasses

import numpy as np
import pytest

from t2t_jax import config as fields
from t2t_jax.data.corpus import open_specs
from t2t_jax.extensions.data.one_sided_text import documents, open_lines
from t2t_jax.extensions.tasks.language_model import LanguageModel
from t2t_jax.io.errors import UserError
from t2t_jax.sections import Options
from tests.decoding.small_translator import translator

DOCUMENTS = ["the cat\nsees the dog", "a dog", "a cat\n sleeps\n- well"]
TEXT = f"\n{DOCUMENTS[0]}\n\n \n{DOCUMENTS[1]}\r\n\n{DOCUMENTS[2]}\n"


def task(max_length=256, **options):
    config = translator(1, kind="decoder_only").config
    config = fields.changed(config, "data", max_length=max_length)
    task_config = fields.TaskConfig("language_model", Options(options))
    return LanguageModel(dataclasses.replace(config, task=task_config))


def test_empty_lines_separate_documents(tmp_path):
    (tmp_path / "x.en").write_text(TEXT, newline="")
    open_one = task(unit="document").open
    (corpus,) = open_specs("x.en@2", open_one, str(tmp_path), weights=True)
    assert [*corpus.pairs()] == [("", text) for text in DOCUMENTS]
    lines = task().open("x.en", str(tmp_path))
    assert len([*lines.pairs()]) == 10
    assert corpus.fingerprint() != lines.fingerprint()
    assert (corpus.name, corpus.weight) == ("x.en", 2.0)
    (tmp_path / "none").write_text("\n \n")
    with pytest.raises(UserError, match="has no document: all its lines are empty"):
        [*documents(open_lines("none", "", "", str(tmp_path))).pairs()]


def test_scores_follow_from_answers_and_text():
    """With windows or without; a window of the whole text is no window."""
    model = translator(1, kind="decoder_only")
    pairs = [("", text) for text in [*DOCUMENTS, "the cat"]]
    plain = task().answers(model, pairs)
    scores = model.score(pairs)
    assert plain == [f"{s.log_prob:.6f}\t{len(s.pieces)}" for s in scores]
    short = task(max_length=6, stride=6).answers(model, pairs)
    assert [a.split("\t")[1] for a in short] == [a.split("\t")[1] for a in plain]
    assert short[0] != plain[0]
    quick = task().quick_scores(plain, pairs)
    nats = -sum(s.log_prob for s in scores)
    octets = sum(len(text.encode()) + 1 for _, text in pairs)
    assert quick["bits_per_byte"] == pytest.approx(nats / np.log(2) / octets)
