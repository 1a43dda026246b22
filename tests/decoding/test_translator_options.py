"""What may be asked of a translator, line by line; and that nothing else matters."""

import math
import re

import numpy as np
import pytest

from t2t_jax.decoding import batch_decoding
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from tests.decoding.small_translator import CONFIG, TEXT, translator, with_own_source

pytestmark = pytest.mark.usefixtures("quick_compiler")


def test_wishes_hold(one):
    lines = ["the cat sees the dog", "a dog sleeps", ""]
    for text in ("die Katze", "u\u2028x", "ü😀"):
        found = one.translate(lines, prefix=text, warn=False)
        wanted = " ".join(text.splitlines())
        assert all(t.text.startswith(wanted) for t in found[:2]), found
        assert found[2].text == ""
    for options in ({"beam": 1}, {}):
        for translation in one.translate(lines[:2], must="Hund", **options):
            assert re.search(r"\bHund\b", translation.text), translation
    free = one.sample(lines[:2] * 4, samples=2)
    texts = [h.text for t in free for h in t.hypotheses]
    words = [w for w in re.findall(r"\w+", " ".join(texts)) if w.isascii()][:3]
    assert words
    found = one.sample(lines[:2] * 4, must_not=words, samples=2)
    found += one.translate(lines[:2], must_not=words)
    for hypothesis in [h for translation in found for h in translation.hypotheses]:
        assert not {*words} & {*re.findall(r"\w+", hypothesis.text)}


REFUSED = [
    ({"prefix": ["a"]}, "prefix has 1 entries for 2 lines; want one for each"),
    ({"prefix": ["a", 5]}, "prefix has 5; want a text, or None"),
    ({"must": [["a"]]}, "must has 1 lists of phrases for 2 lines"),
    ({"must_not": [[" \t"], ["a"]]}, "must_not has ' "),
    ({"must_not": 5}, "must_not=5; want a text, or a list"),
    ({"must": ["a", ""]}, "must has ''; want phrases, each of one line and not empty"),
    ({"must": "a\nb"}, "must has 'a"),
    ({"must": "cat", "must_not": "cat"}, "line 5: must='cat' contains a phrase"),
    (
        {"prefix": [None, "a cat sees"], "must_not": "cat"},
        "line 6: prefix='a cat sees' contains a phrase of must_not",
    ),
    ({"prefix": [None, "Katze " * 9]}, "line 6: the prefix has 45 .* at most 9 "),
    ({"prefix": "\ud800"}, "character 1 is a lone surrogate"),
    ({"must": "a\udcff"}, "character 2 is a lone surrogate"),
    ({"must_not": [[], ["\udcff"]]}, "lone surrogate"),
    ({"beam": 0}, "beam=0 is too small; want at least 1"),
    ({"nbest": 0}, "nbest=0 with beam=3"),
    ({"nbest": 4}, "nbest=4 with beam=3"),
    ({"beam": 100_000}, "beam=100000, but the vocabulary has 290 tokens"),
    ({"alpha": math.nan}, "alpha=nan"),
    ({"penalty": "gnm"}, "did you mean 'gnmt'"),
    ({"stop": "never"}, "stop='never'; there are: best, first"),
    ({"batch_size": 0}, "batch_size=0; want at least 1"),
]
REFUSED_SAMPLES = [
    ({"samples": 0}, "samples=0; want at least 1"),
    ({"seed": -1}, "seed=-1 is too small; want at least 0"),
    ({"seed": 1 << 32}, "seed=4294967296"),
    ({"temperature": 0}, "temperature=0.0; want a number above 0"),
    ({"prefix": ["a"]}, "prefix has 1 entries for 2 lines"),
]


@pytest.mark.parametrize(
    ("call", "options", "told"),
    [("translate", *case) for case in REFUSED]
    + [("sample", *case) for case in REFUSED_SAMPLES],
)
def test_mistakes_are_told(one, call, options, told):
    lines = ["the cat", "a dog"]
    with pytest.raises(UserError, match=told):
        getattr(one, call)(lines, first_line=5, **options)


def test_what_is_no_mistake(one):
    for options in (
        {"must": [["the cat"], []], "must_not": [["dog"], ["cat"]]},
        {"prefix": [None, "a cat"], "must_not": "cat"},  # "a cats"
    ):
        assert len(one.translate(["the cat", "a dog"], **options, warn=False)) == 2


def test_hypotheses_that_take_more_memory_than_there_is_are_refused(one, monkeypatch):
    monkeypatch.setattr(batch_decoding, "device_memory", lambda _: 64 * 2**20)
    with pytest.raises(UserError, match="290 hypotheses .* At most (.*) can fit") as e:
        one.translate([], beam=290)  # before a line is read
    with pytest.raises(UserError, match="290 hypotheses .* lines of up to 64 tokens"):
        one.sample(["dog " * 40], samples=290, warn=False)
    most = int(re.search("At most (.*) can fit", str(e.value))[1])
    one.translate([], beam=most)
    with pytest.raises(UserError, match=f"{most + 1} hypotheses"):
        one.translate([], beam=most + 1)


def test_half_a_character_is_told_not_sent_to_the_tokenizer(one):
    for call in (one.translate, one.sample):
        with pytest.raises(UserError, match=r"'a\\ud800': character 2 is a lone surr"):
            call(["a", "a\ud800"])
    with pytest.raises(UserError, match="is not a line of text"):
        one.translate([b"a"])


def test_a_prefix_needs_room_for_a_piece_more(one):
    """The room is the line's pieces, its end, and config.decode.extra_length = 5."""
    line, prefix = "a dog sleeps", "x"
    room = len(one.vocabulary.encode([line], end=True)[0]) + 5
    while len(one.vocabulary.encode([prefix])[0]) < room - 1:
        prefix += "x"
    found = one.translate(["", line], prefix=prefix, warn=False)
    assert found[1].text.startswith(prefix)
    assert one.translate(["", " "], prefix=prefix + "xx")[1].text == ""
    with pytest.raises(UserError, match=f"line 2: .* at most {room} "):
        one.translate(["", line], prefix=prefix + "x")


def test_greedy_is_what_samples_come_to(one):
    greedy = [t.text for t in one.translate(TEXT, beam=1)]
    assert [t.text for t in one.sample(TEXT, temperature=1e-4)] == greedy


def test_an_ensemble_has_one_vocabulary(one):
    assert "steps 7; " in repr(Translator.ensemble([one, one]))
    with pytest.raises(UserError, match="share one vocabulary: train them with the"):
        Translator.ensemble([one, translator(1, pieces=289)])
    separate = with_own_source(one)
    with pytest.raises(UserError, match="source and the tokenizer differ.*source_toke"):
        Translator.ensemble([one, separate])
    Translator.ensemble([separate, separate])
    with pytest.raises(UserError, match="no workdir is given"):
        Translator.load([])


def test_the_ids_of_the_source_are_its_own(one):
    """Its pieces are those of the target here, but other ids, that of EOS too."""
    own, lines = with_own_source(one), [*TEXT, ""]
    assert own.translate(lines, nbest=2) == one.translate(lines, nbest=2)
    pairs = list(zip(lines, lines[::-1], strict=True))
    assert own.score(pairs) == one.score(pairs)
    assert own.align(pairs) == one.align(pairs)
    ours, theirs = (t.attention(TEXT[2], TEXT[0]) for t in (own, one))
    assert (ours.source, ours.target) == (theirs.source, theirs.target)
    np.testing.assert_array_equal(ours.cross, theirs.cross)


def test_half_precision_is_close(one):
    half = translator(1, dtype="bfloat16")
    pairs = list(zip(TEXT, TEXT[::-1], strict=True))
    for low, high in zip(half.score(pairs), one.score(pairs), strict=True):
        assert low.log_probs != high.log_probs
        assert low.log_prob == pytest.approx(high.log_prob, rel=0.05)
    assert half.provenance()["dtype"] == ["bfloat16"]


def test_options_are_of_a_copy(one):
    wide = one.with_options(beam=4, alpha=0.0, penalty="none")
    assert one.config == CONFIG
    assert wide.translate(TEXT) == one.translate(TEXT, beam=4, alpha=0, penalty="none")
    both = Translator.ensemble([one, one]).with_options(beam=4)
    assert [m.config.decode.beam for m in both.members] == [4, 4]
    with pytest.raises(UserError, match="did you mean 'decode.beam'"):
        one.with_options(bem=4)


def test_what_translations_are_made_from_tells_models_apart(one):
    made_from = one.provenance()
    assert made_from == one.with_options(average=3).provenance()
    for other in (
        one.with_options(beam=5),
        one.with_options(extra_length=6),
        translator(2),
        Translator.ensemble([one, one]),
    ):
        assert made_from != other.provenance()
