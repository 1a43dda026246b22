"""The table of mutants (mutants.py) fits the code that they change."""

from tests import mutants


def test_code_and_tests_of_every_mutant_exist():
    assert mutants.check() == []
