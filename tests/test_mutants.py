"""The table of mutants (mutants.py) fits the code that they change."""

from tests import mutants


def test_code_and_tests_of_every_mutant_exist():
    assert mutants.check() == []


def test_there_are_sixty():
    counts = {kind: len(rows) for kind, rows in mutants.MUTANTS.items()}
    assert counts == {"law": 16, "promise": 20, "mend": 24}
