"""Benchmarks, run as `python -m benchmarks.NAME`; they print medians and ratios."""

import sys
from collections.abc import Callable
from types import SimpleNamespace


def run(
    main: Callable,
    define_flags: Callable,
    config: str | None = None,
    distributed: bool = False,
) -> None:
    """Runs a benchmark like a command of `t2t_jax`, with huge pages.

    Args:
      main, define_flags: as in a command's module.
      config: the default for --config; None if the benchmark takes no config.
      distributed: True if it may run in several processes.
    """
    from t2t_jax.parallel import huge_pages

    huge_pages.restart_if_useful()
    from t2t_jax.commands import runner
    from t2t_jax.parallel.process_setup import set_up_process

    def set_up(argv):
        set_up_process()
        main(argv)

    command = SimpleNamespace(
        main=set_up,
        define_flags=define_flags,
        default_config=lambda: config,
        DISTRIBUTED=distributed,
        __doc__=sys.modules["__main__"].__doc__,
    )
    runner.run("this benchmark", command)
