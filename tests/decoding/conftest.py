"""Set-up of the tests of decoding."""

import pytest

from tests.decoding.small_translator import translator


@pytest.fixture(scope="session")
def tiny():
    """A small random translator, for tests of what is done with any."""
    return translator(1)
