"""The text that the tests of the doctor share, and what is learnt from it."""

import pytest

from t2t_jax.tools.doctor.knowledge import Knowledge
from t2t_jax.tools.doctor.overlap import ReferenceSet
from tests.doctor.made_up import grammar_pairs

DEV = [
    ("The old captain has sold the green boat to a friend .", "Der alte Kapitän hat ."),
    ("Yes .", "Ja ."),
]


@pytest.fixture(scope="session")
def text():
    return grammar_pairs(800)


@pytest.fixture(scope="session")
def knowledge(text):
    blocks = [text[at : at + 4] for at in range(0, len(text), 4)]
    return Knowledge(blocks, [ReferenceSet("dev", DEV)])
