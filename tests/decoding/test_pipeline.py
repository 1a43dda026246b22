"""Code that used Transformers' translation pipeline goes on working."""

import pytest

from t2t_jax import pipeline
from t2t_jax.io.errors import UserError
from tests.decoding.small_translator import TEXT, translator


def test_results_have_the_shapes_of_transformers():
    model = translator(1)
    texts = [t.text for t in model.translate(TEXT, beam=2, warn=False)]
    records = [{"translation_text": text} for text in texts]
    pipe = pipeline("translation_eng_to_de", model)
    assert pipe(TEXT[0], num_beams=2) == records[:1]
    assert pipe(TEXT, num_beams=2, src_lang="en_US", max_length=None) == records
    assert pipe([]) == []
    lists = [[record] for record in records]
    read = []
    lazy = pipe((read.append(text) or text for text in TEXT), num_beams=2, batch_size=2)
    assert next(lazy) == lists[0]
    assert read == TEXT[:2]
    assert [*lazy] == lists[1:]
    several = pipe(TEXT, num_beams=3, num_return_sequences=2)
    best = model.translate(TEXT, beam=3, nbest=2, warn=False)
    assert several == [
        [{"translation_text": h.text} for h in t.hypotheses] for t in best
    ]


def test_options_are_those_of_translate():
    theirs = {
        "num_beams": 2,
        "length_penalty": 0.3,
        "early_stopping": True,
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.2,
        "max_new_tokens": 3,
    }
    ours = {"beam": 2, "alpha": 0.3, "penalty": "length", "stop": "first"}
    ours |= {"no_repeat_ngram": 2, "repetition_penalty": 1.2, "extra_length": 3}
    found = pipeline("translation", translator(1), **theirs)(TEXT)
    wanted = translator(1).translate(TEXT, **ours, warn=False)
    assert [row["translation_text"] for row in found] == [t.text for t in wanted]


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("summarization", {}, "'translation_en_to_de'"),
        ("translation_en_de", {}, "'translation_en_to_de'"),
        ("translation_fr_to_de", {}, "src_lang='fr', .* from 'en' to 'de'"),
        ("translation", {"tgt_lang": "en"}, "tgt_lang='en'"),
        ("translation", {"num_beam": 2}, "'num_beam'; did you mean 'num_beams'"),
        ("translation", {"early_stopping": 2}, "True, False or 'never'"),
    ],
)
def test_other_tasks_languages_and_options_are_refused(task, options, message):
    with pytest.raises(UserError, match=message):
        pipeline(task, translator(1), **options)


def test_what_is_no_text_is_refused():
    with pytest.raises(UserError, match="3 is not a text"):
        pipeline("translation", translator(1))(3)
