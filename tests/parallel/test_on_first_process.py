"""`OnFirstProcess`: elsewhere methods do nothing, and typos are still typos."""

import pytest

from t2t_jax.parallel import processes


class Store:
    limit = 3

    def __init__(self, place):
        self.place = place

    def save(self, n):
        return n + 1


def test_on_process_0_it_is_the_object():
    store = processes.OnFirstProcess(Store, "here")
    assert (store.place, store.save(1)) == ("here", 2)


def test_elsewhere_methods_do_nothing_and_typos_raise(monkeypatch):
    monkeypatch.setattr(processes, "is_first", lambda: False)
    store = processes.OnFirstProcess(Store, "here")
    assert store.save(1) is None
    for wrong in ("svae", "limit"):
        with pytest.raises(AttributeError, match=wrong):
            getattr(store, wrong)
