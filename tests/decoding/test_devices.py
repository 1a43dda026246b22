"""Several devices give the results of one, bit by bit."""

import functools

import jax
import numpy as np
import pytest

from t2t_jax.decoding.batches import groups
from t2t_jax.decoding.translator import Translator
from t2t_jax.search.rules import Rules, concatenate_rules
from tests.decoding import small_translator

pytestmark = pytest.mark.usefixtures("eight_devices")

TEXT = "the cat sees a dog sleeps die Katze sieht den Hund ein"


def words(count: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(TEXT.split(), count))


# In blocks of 8: ten of the first bucket, of which the last has 2 lines; one of the
# second; and lines of nothing, which are in none.
LINES = [words(1 + n % 5, n) for n in range(74)]
LINES[10:10] = ["", *(words(14, n) for n in range(5)), " "]
SHORT = [line for line in LINES if len(line.split()) < 6]
# Blocks without rules, with one phrase, with two, and without rules again. (Each size
# of tables is a compilation where blocks are computed one by one.)
ORDER = sorted(range(len(SHORT)), key=lambda n: (len(SHORT[n]), n))
WISHES = {
    "prefix": ["ein" if n in ORDER[20:34:3] else None for n in range(len(SHORT))],
    "must": [["Hund"] * (n in ORDER[20:38:2]) for n in range(len(SHORT))],
    "must_not": [["sieht den Hund"] * (n in ORDER[32:36]) for n in range(len(SHORT))],
}


@functools.cache
def on(devices: int, seed: int = 1) -> Translator:
    model = small_translator.translator(seed)
    return Translator(
        *(model.config, model.vocabulary, model.model, model.parameters, model.steps),
        devices=jax.local_devices()[:devices],
    )


def both(devices: int) -> Translator:
    return Translator.ensemble([on(devices), on(8, seed=2)])


def pairs():
    return [(line, words(1 + n % 9, n)) for n, line in enumerate(LINES)]


WAYS = {
    "search": lambda n: on(n).translate(SHORT, nbest=2),
    "rules": lambda n: on(n).translate(SHORT, **WISHES, beam=2),
    "ensemble": lambda n: both(n).translate(SHORT[:20], beam=1),
    "sample": lambda n: on(n).sample(SHORT, samples=2, seed=7),
    "score": lambda n: on(n).score(pairs()),
    "score of an ensemble": lambda n: both(n).score(pairs()[:9]),
    "align": lambda n: on(n).align(pairs()),
    "attention": lambda n: on(n).attention(LINES[0], "ein Hund"),
}
# Compiling is what takes long here.
FAST = ["search", "score"]


@pytest.mark.parametrize(
    ("way", "devices"),
    [(way, 8) for way in FAST]
    + [pytest.param(way, 8, marks=pytest.mark.slow) for way in WAYS if way not in FAST]
    + [pytest.param(way, 3, marks=pytest.mark.slow) for way in WAYS],
)
def test_results_do_not_depend_on_the_number_of_devices(way, devices):
    actual, want = WAYS[way](devices), WAYS[way](1)
    if way == "attention":
        actual, want = (
            [x.tolist() for x in (maps.encoder, maps.decoder, maps.cross)]
            for maps in (actual, want)
        )
    assert actual == want


@pytest.mark.parametrize("blocks", [3, 8])
def test_the_lines_of_a_block_do_not_depend_on_the_blocks_beside_it(blocks):
    decode = small_translator.CONFIG.decode
    lengths = np.random.default_rng(0).integers(0, 70, 300).tolist()
    want = [group.lines for group in groups(lengths, decode, 1)]
    model = groups(lengths, decode, blocks)
    parts = [part for group in model for part in group.split(group.lines)]
    assert [part for part in parts if part] == want
    assert sorted(line for lines in want for line in lines) == [
        *np.flatnonzero(lengths)
    ]
    assert all(len([*group.split(group.lines)]) == blocks for group in model)


def test_rules_are_joined_to_tables_of_one_size():
    def table_rules(states: int, phrases: int, closer: int) -> Rules:
        unit = np.ones((states, 5), np.int32)
        prefix_bt, start_bc = np.full((4, 6), 2), np.full((4, phrases), 3)
        return Rules(prefix_bt, start_bc, unit, unit > 0, unit[:closer] > 0, unit[:, 0])

    complete = concatenate_rules([table_rules(2, 1, 0), None, table_rules(4, 2, 4)])
    ruled, free, rules = (
        Rules(*(leaf[row : row + 4] for leaf in complete)) for row in (0, 4, 8)
    )
    assert all(map(np.array_equal, rules, table_rules(4, 2, 4)))
    assert (free.prefix_bt == -1).all()
    assert not free.start_bc.any()
    assert ruled.start_bc.tolist() == [[3, 0]] * 4
    assert ruled.next_sv.tolist() == [[1] * 5] * 2 + [[0] * 5] * 2
