"""Text that is encoded word by word has the tokens of its lines."""

import itertools
import sys

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.filling import ragged
from t2t_jax.data.tokenizers.sentencepieces import BULK, escape
from t2t_jax.data.tokenizers.words import LONG, TOKENS, WordTable, _keys
from t2t_jax.io.threads import in_order
from tests.data.test_subword_sampling import MODELS, TEXT, foreign, line

LOSSLESS = {"byte_fallback": True, "normalization_rule_name": "identity"}
LOSSLESS |= {"remove_extra_whitespaces": False, "vocab_size": 400}


@pytest.fixture(scope="module", params=["ours", "symbols", "across words", "unigram"])
def vocabulary(request):
    return {
        "ours": MODELS["ours"],
        "symbols": MODELS["ours with symbols"],
        "across words": lambda: foreign(split_by_whitespace=False, **LOSSLESS),
        "unigram": lambda: foreign(model_type="unigram", vocab_size=60),
    }[request.param]()


def check(encoded, rows):
    expected = ragged(rows)
    np.testing.assert_array_equal(encoded.tokens, expected.tokens)
    np.testing.assert_array_equal(encoded.offsets, expected.offsets)
    assert encoded.tokens.dtype == np.int32


word = line | st.sampled_from(["", " ", "a\n", "\0"])
spaced = st.lists(word, max_size=4).map(" ".join)


@settings(max_examples=15)
@given(st.lists(spaced, min_size=1, max_size=5), st.booleans())
def test_much_text_has_the_ids_of_its_lines(vocabulary, lines, many):
    lines = ([*lines, "", *TEXT] * (BULK if many else 1))[:BULK]
    for _ in range(2):  # the second time all short words are known
        check(vocabulary.encode_flat(lines), vocabulary.encode(lines, end=True))


@pytest.mark.parametrize("bits", [1, 10, 19])
def test_threads_share_a_table_until_it_is_full(bits):
    class Processor(sentencepiece.SentencePieceProcessor):
        encoded = ()

        def encode(self, words, **options):
            self.encoded = words
            return super().encode(words, **options)

    rng = np.random.default_rng(0)
    words = ["".join(map(chr, c)) for c in rng.integers(97, 106, (3000, 4))]
    words += ["straße" * 40, "", "Straßenbahnen", "\0" * 9, "😀"]
    number = len(words) - rng.geometric(0.002, (4000, 6)).clip(1, len(words))
    lines = [" ".join([words[i] for i in row]) for row in number]
    processor = Processor(model_proto=MODELS["ours"]().model)
    rows = processor.encode([escape(line) for line in lines])
    table = WordTable(processor, bits)
    chunks = ["\n".join([*lines[i : i + 250], ""]) for i in range(0, 4000, 250)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        parts = [*in_order(lambda chunk: table.encode(chunk, 1), chunks, threads=4)]
    finally:
        sys.setswitchinterval(interval)
    for i, part in enumerate(parts):
        check(part, rows[250 * i : 250 * (i + 1)])
    check(table.encode("".join(chunks), 1), rows)
    # All words of a few tokens are known if there is room, and then not encoded again.
    words = {*" ".join(lines).split(" ")}
    short = {w for w in words if len(processor.encode([w])[0]) <= TOKENS}
    assert 1000 < len(short) < len(words)
    table.encode("".join(chunks), 1)
    assert len(short - {*processor.encoded}) == min(len(short), 1 << bits >> 1)


def test_a_full_table_makes_room_for_the_words_of_other_text():
    vocabulary = MODELS["ours"]()
    tokenizer, lines = vocabulary.tokenizer, TEXT * BULK
    vocabulary.encode_flat(lines)
    tokenizer._words = full = WordTable(tokenizer._processor, bits=2)
    for _ in range(2):
        check(vocabulary.encode_flat(lines), vocabulary.encode(lines, end=True))
    assert full.room == 0 < tokenizer._words.room


def test_words_have_different_hashes():
    letters = [chr(c) for c in range(128) if c != ord(" ")]
    words = {a + b for a in ["", *letters] for b in letters}
    words |= {"".join(w) for n in range(11) for w in itertools.product("a\0", repeat=n)}
    words |= {"b" * n + "\0" * k for n in range(1, 2 * LONG) for k in range(10)}
    data = " ".join([*words, ""]).encode()
    end = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(" "))
    keys = _keys(data, np.append(0, end[:-1] + 1), end)
    assert len({*keys.tolist()}) == len(words) == len(keys)
