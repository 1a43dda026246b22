"""What may be asked of a translator, line by line; and that nothing else matters."""

import re

import numpy as np
import pytest

from t2t_jax.decoding import batch_decoding
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from tests.decoding.small_translator import TEXT, translator, with_own_source


def test_wishes_hold(tiny):
    lines, free = ["the cat sees the dog", "a dog sleeps", ""], tiny.sample(TEXT)
    words = [w for w in re.findall(r"\w+", " ".join(map(str, free))) if w.isascii()]
    wishes = {"prefix": ["die Katze", "u\u2028x", "ein"], "must_not": words[:3]}
    translations = tiny.translate(lines, **wishes, must=["Hund", (), ()], warn=False)
    assert re.search(r"\bHund\b", translations[0].text), translations
    for results in (translations, tiny.sample(lines, **wishes, warn=False)):
        assert results[0].text.startswith("die Katze"), results
        assert results[1].text.startswith("u x"), results
        assert results[2].text == ""
        assert not {*words[:3]} & {*re.findall(r"\w+", " ".join(map(str, results)))}


REFUSED = [
    ("translate", {"prefix": ["a"]}, "prefix has 1 entries for 2 lines; want one for"),
    ("translate", {"must": ["a", ""]}, "must has ''; want phrases, each of one line"),
    (
        "translate",
        {"prefix": [None, "a cat sees"], "must_not": "cat"},
        "line 6: prefix='a cat sees' contains a phrase of must_not",
    ),
    ("translate", {"prefix": "Katze " * 9}, "line 5: the prefix has 45 .* at most "),
    ("translate", {"must_not": [[], ["\udcff"]]}, "lone surrogate"),
    ("translate", {"beam": 100_000}, "beam=100000, but the vocabulary has 290 tokens"),
    ("translate", {"penalty": "gnm"}, "did you mean 'gnmt'"),
    ("translate", {"batch_size": 0}, "batch_size=0; want at least 1"),
    ("sample", {"samples": 0}, "samples=0; want at least 1"),
    ("sample", {"seed": 1 << 32}, "seed=4294967296"),
]


@pytest.mark.parametrize(("call", "options", "told"), REFUSED)
def test_mistakes_are_told(tiny, call, options, told):
    with pytest.raises(UserError, match=told):
        getattr(tiny, call)(["the cat", "a dog"], first_line=5, **options)
    with pytest.raises(UserError, match=r"'a\\ud800': character 2 is a lone surr"):
        getattr(tiny, call)(["a", "a\ud800"])


def test_hypotheses_that_take_more_memory_than_there_is_are_refused(tiny, monkeypatch):
    monkeypatch.setattr(batch_decoding, "device_memory", lambda _: 64 * 2**20)
    with pytest.raises(UserError, match="290 hypotheses .* At most (.*) can fit") as e:
        tiny.translate([], beam=290)  # before a line is read
    largest = int(re.search("At most (.*) can fit", str(e.value))[1])
    tiny.translate([], beam=largest)
    with pytest.raises(UserError, match=f"{largest + 1} hypotheses"):
        tiny.translate([], beam=largest + 1)
    with pytest.raises(UserError, match="9,999 hypotheses"):
        tiny.sample([], samples=9_999)


def test_an_ensemble_has_one_vocabulary(tiny):
    with pytest.raises(UserError, match="share one vocabulary: train them with the"):
        Translator.ensemble([tiny, translator(1, pieces=289)])
    with pytest.raises(UserError, match="source and the tokenizer differ.*source_toke"):
        Translator.ensemble([tiny, with_own_source(tiny)])


def test_the_ids_of_the_source_are_its_own(tiny):
    """Its pieces are those of the target here, but other ids, that of EOS too."""
    file_text, lines = with_own_source(tiny), [*TEXT, ""]
    assert file_text.translate(lines) == tiny.translate(lines)
    pairs = list(zip(lines, lines[::-1], strict=True))
    assert file_text.score(pairs) == tiny.score(pairs)
    results, other = (t.attention(TEXT[2], TEXT[0]) for t in (file_text, tiny))
    assert (results.source, results.target) == (other.source, other.target)
    np.testing.assert_array_equal(results.cross, other.cross)
