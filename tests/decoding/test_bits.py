"""Laws about bits, with the programs that users have.

Other files of this folder let XLA spend little time on a program. What is the same to
the bit may depend on how it rounds, so here it compiles as it does for a user. The
searches are those of the other files, of fewer kinds.
"""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from t2t_jax.decoding import batch_decoding, batches
from t2t_jax.tools.verify.references.search import Options
from tests.decoding.small_translator import TEXT, translator
from tests.decoding.test_rules import check_rules_against_the_twin
from tests.decoding.test_search import check_against_the_twin, examples, grids, seeds
from tests.decoding.test_teaching import PAIRS
from tests.decoding.test_translator import NASTY as ODD_LINES

pytestmark = pytest.mark.usefixtures("users_compiler")

# But for one of them, of one shape: compiling is what takes long here.
NASTY = [*ODD_LINES[:-1], "x" * 300, "\ufeffthe \u2581 cat\u3000"]
SHORT = [n for n, line in enumerate(NASTY) if len(line) < 99]
WISHES = {  # of two sizes of tables, each of which is compiled for
    "prefix": ["ein", "die", None, "", None, None, None, None, None, None],
    "must": ["Hund", "Hund", "Hund", ["Hund"], [], (), (), None, (), ()],
    "must_not": [(), (), ["Katze"], None, (), (), (), (), (), ()],
}


@examples(40)
@hypothesis.given(
    seeds,
    grids,
    strategies.sampled_from([Options(6, 3, 3, 0.6), Options(5, 4, 1, 1.0, "length")]),
)
def test_search_is_its_twin_bit_by_bit_where_ties_abound(seed, grid, options):
    check_against_the_twin(seed, grid, options)


@examples(20)
@hypothesis.given(seeds, grids)
def test_search_by_rules_is_its_twin_bit_by_bit(seed, grid):
    check_rules_against_the_twin(seed, grid, (4, 2), "best")


CALLS = {
    "translate": ("translate", {"nbest": 3}, {}, SHORT),
    "long lines": ("translate", {}, {}, range(len(NASTY))),
    "rules": ("translate", {}, WISHES, SHORT),
    "sample": ("sample", {"samples": 2, "seed": 3}, {}, SHORT),
}
SLOW = "long lines", "rules", "sample"


@pytest.mark.parametrize(
    "call", ["translate", *(pytest.param(c, marks=pytest.mark.slow) for c in SLOW)]
)
def test_batches_neighbours_and_their_wishes_change_nothing(tiny, call):
    """One at a time, some at a time, in another order; to the bit."""
    name, options, wishes, rows = CALLS[call]

    def results(order, wishes=wishes, **options_of_call):
        wishes = {key: [values[n] for n in order] for key, values in wishes.items()}
        lines = [NASTY[n] for n in order]
        return getattr(tiny, name)(
            lines, **options, **wishes, **options_of_call, warn=False
        )

    complete = dict(zip(rows, results(rows), strict=True))
    if wishes:
        plain = dict(zip(rows, results(rows, {}), strict=True))
        free = [n for n in rows if not any(values[n] for values in wishes.values())]
        assert [complete[n] for n in free] == [plain[n] for n in free]
    for size in (1, 64):
        order = np.random.default_rng(size).permutation(rows).tolist()
        several = results(order, batch_size=size)
        assert several == [complete[n] for n in order]


def test_the_rows_of_a_block_change_nothing(monkeypatch):
    """From two lines on, in a model for which XLA has other products for few rows."""
    wide_model = translator(1, width=256, hidden=512, heads=4)
    wide_model = wide_model.with_options(beam=4, batch_tokens=512)
    complete = wide_model.translate(TEXT, nbest=4)
    monkeypatch.setattr(batch_decoding, "block_rows", lambda bucket, decode: 2)
    monkeypatch.setattr(batches, "block_rows", lambda bucket, decode: 2)
    assert wide_model.translate(TEXT, nbest=4) == complete


def test_a_pair_does_not_see_its_neighbours(tiny):
    complete = tiny.score(PAIRS)
    assert [tiny.score([pair])[0] for pair in PAIRS] == complete
    assert tiny.score(PAIRS[::-1] * 5)[: len(PAIRS)] == complete[::-1]
    assert tiny.score([]) == []
