"""Measurements, each `python -m benchmarks.NAME`: medians, and a ratio."""

import sys
from collections.abc import Callable
from types import SimpleNamespace


def run(main: Callable, define_flags: Callable, config: str | None = None) -> None:
    """Runs a benchmark as a command, with huge pages; `config` is the default."""
    from t2t_jax.parallel import huge_pages

    huge_pages.restart_if_useful()
    from t2t_jax.commands import runner

    command = SimpleNamespace(
        main=main,
        define_flags=define_flags,
        default_config=lambda: config,
        __doc__=sys.modules["__main__"].__doc__,
    )
    runner.run("this benchmark", command)
