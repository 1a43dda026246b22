"""The table of mutants (mutants.py) goes with the code that they change."""

from collections import Counter

from tests import mutants


def test_what_a_mutant_changes_stands_in_its_file_once():
    assert mutants.check() == []


def test_there_are_sixty():
    counts = Counter({kind: len(rows) for kind, rows in mutants.MUTANTS.items()})
    assert counts == {"law": 16, "promise": 20, "mend": 24}
