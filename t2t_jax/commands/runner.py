"""What the commands share: configs from files, flags, errors without tracebacks."""

import errno
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import absl.logging
import ml_collections
from absl import app, flags
from ml_collections import config_flags

from t2t_jax import config as fields
from t2t_jax import screen
from t2t_jax.data.corpus import Corpus, open_corpora
from t2t_jax.errors import UserError, nearest
from t2t_jax.parallel import hosts, meeting
from t2t_jax.parallel.host import prepare_host
from t2t_jax.screen import say


def load_config(path: str | Path, **sections: dict) -> ml_collections.ConfigDict:
    """The config of a file in `configs/`, with changes, for Python and notebooks.

    Args:
      path: `configs/tiny.py`, or `configs/file.py:argument` for files that take one.
      sections: changed fields by section, such as `train={"steps": 100}`.

    Raises:
      UserError: no such file, field or type.
    """
    _make_importable(str(path))
    changed = _load(str(path)).to_dict()
    for section, values in sections.items():
        if not isinstance(values, Mapping):
            raise UserError(
                f"{section}={values!r}: fields come by section, such as "
                "train={'steps': 100}"
            )
        changed[section] = {**changed.get(section, {}), **values}
    return fields.to_config_dict(fields.from_config_dict(changed))


def _load(path: str) -> ml_collections.ConfigDict:
    """Through the same loader as the flag, so that both take the same files."""
    holder = flags.FlagValues()
    flag = config_flags.DEFINE_config_file("config", flag_values=holder)
    try:
        holder(["", f"--config={path}"])
        return flag.value
    except AttributeError as e:
        raise UserError(f"{path} is no config: {e}; want a get_config()") from None
    except flags.Error as e:
        raise UserError(_explained(e)) from None


def _make_importable(path: str) -> None:
    """Checks that a config file is there; makes its folder importable as a package.

    A config is a difference from another, `from configs import base`, wherever the
    program is started.
    """
    file = Path(path.partition(":")[0])
    sys.modules.pop("config_config", None)  # or the config read before would come back
    if not file.is_file():
        there = sorted(str(f) for f in file.parent.glob("*.py"))
        hint = nearest(str(file), there) if there else f"; {file.parent} has no configs"
        raise UserError(f"--config={path}: {file} does not exist{hint}")
    above = str(file.resolve().parent.parent)
    if above not in sys.path:
        sys.path.append(above)


def config_name(path: str) -> str:
    """`configs/big.py:en-fr` -> `big-en-fr`: names the workdir where none is given."""
    file, _, argument = path.partition(":")
    return "-".join([Path(file).stem, *([argument] if argument else [])])


def define_config_flag() -> None:
    """The flag of every command that takes a config."""
    config_flags.DEFINE_config_file(
        "config",
        None,
        "A file of configs/; --config.SECTION.FIELD=VALUE changes a field.",
    )


def define_workdir_flags(several: bool = False) -> None:
    """The flags of every command that uses a trained workdir, or an ensemble."""
    more = " Several with commas are an ensemble." if several else ""
    told = f"A workdir of t2t_jax.main.{more}"
    flags.DEFINE_string("workdir", None, told, required=True)
    flags.DEFINE_enum(
        "dtype",
        None,
        ["float32", "bfloat16"],
        "Of activations; as in training if not given.",
    )
    flags.DEFINE_string(
        "checkpoint",
        None,
        "'average', 'average:N' (of the last N), 'last', 'best', 'best:N', a step, or "
        "steps to average with commas; config.decode.checkpoint of the workdir if not "
        "given.",
    )


def define_test_flag() -> None:
    """The flag of every command that reads test sets."""
    flags.DEFINE_string(
        "test",
        None,
        "PREFIX of two text files, such as news for news.en and news.de (or .gz), "
        "seen from here; or tfds:NAME:SPLIT; or grammar:SPLIT; several with commas.",
        required=True,
    )


def test_sets(given: flags.FlagValues, data: fields.DataConfig) -> list[Corpus]:
    """The test sets that the flag names, in the languages of a workdir."""
    corpora = open_corpora(given.test, data.source, data.target)
    if not corpora:
        raise UserError(f"--test={given.test!r} names no test set; want a PREFIX")
    return corpora


def define_search_flags() -> None:
    """The flags of every command that searches; without them the config's values."""
    flags.DEFINE_integer("beam", None, "Width of the search; 1 is greedy.")
    flags.DEFINE_float("alpha", None, "Exponent of the length penalty.")
    penalties = "gnmt: ((5 + n) / 6)^alpha, length: n^alpha, or none."
    flags.DEFINE_string("penalty", None, f"Length penalty. {penalties}")
    flags.DEFINE_string(
        "stop", None, "best: while a better one could be found; first: when one is."
    )


def workdirs_of(given: flags.FlagValues) -> str | list[str]:
    """The workdir of the flags, or the workdirs of an ensemble."""
    named = [name for name in map(str.strip, given.workdir.split(",")) if name]
    if not named:
        raise UserError(f"--workdir={given.workdir!r} names no workdir")
    return named[0] if len(named) == 1 else named


# What a disk or a file system says that a person can mend.
_STORAGE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE),
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY),
}


class _Tell(logging.Handler):
    """Shows the program's own warnings plainly, above any progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def run(
    main: Callable[[Sequence[str]], None],
    define_flags: Callable[[], None],
    config: str | None = None,
    several: bool = False,
) -> None:
    """Runs a command. What a person can mend is told without a traceback, status 2.

    Flags are defined here and not on import: a program that imports `train` has flags
    of its own. `config` stands in where the command line has no --config. `several`: it
    may run in several processes, which then meet first.
    """
    prepare_host()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    log = logging.getLogger("t2t_jax")
    log.propagate = False
    log.addHandler(_Tell())
    argv = [*sys.argv]
    if config and not any(re.match("--?config(=|$)", argument) for argument in argv):
        argv.insert(1, f"--config={config}")
    if config:
        _told(_check_config, argv)
    define_flags()
    if several:
        _define_process_flags()

    def quietly(argv: Sequence[str]):
        if not any(a.startswith(("-v", "--v")) for a in sys.argv[1:]):
            absl.logging.set_verbosity(absl.logging.WARNING)  # of the libraries
            # What goes wrong in writing a checkpoint is raised too, and told once.
            libraries = absl.logging.get_absl_logger()
            libraries.addFilter(lambda record: "orbax" not in record.pathname)
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            sys.unraisablehook = _unraisable
        if several:
            _told(_meet, argv)
        _told(main, argv)

    app.run(quietly, argv=argv, flags_parser=lambda argv: _told(_parse, argv))


def _unraisable(unraisable) -> None:
    """Hides what TensorStore says, for each array, after a write that has failed."""
    if "Event loop is closed" not in str(unraisable.exc_value):
        sys.__unraisablehook__(unraisable)


def _define_process_flags() -> None:
    """What a process has to know of the others where JAX cannot find it out."""
    flags.DEFINE_string(
        "coordinator_address", None, "HOST:PORT of process 0, for several processes."
    )
    flags.DEFINE_integer("num_processes", None, "How many processes there are.")
    flags.DEFINE_integer("process_id", None, "The number of this one, from 0.")


def _meet(_) -> None:
    given = flags.FLAGS
    known = given.coordinator_address, given.num_processes, given.process_id
    meeting.initialize(*known)
    if not hosts.is_first():
        screen.silence()


def _terminate(signum: int, frame) -> None:
    """Ends a command as Ctrl-C does, so that it leaves nothing half made."""
    error = KeyboardInterrupt("SIGTERM: stopped; what was written is whole")
    error.signum = signum
    raise error


def _told(function: Callable, argv: Sequence[str]):
    try:
        return function(argv)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except UserError as e:
        _leave(2, f"error: {e}", getattr(e, "everywhere", False))
    except KeyboardInterrupt as e:
        told = str(e) or "SIGINT: stopped; what was written is whole"
        everywhere = getattr(e, "everywhere", False)
        _leave(128 + getattr(e, "signum", signal.SIGINT), told, everywhere)
    except OSError as e:
        if e.errno not in _STORAGE:
            raise
        told = "What was written before is whole; when this is mended, try again"
        _leave(2, f"error: {e}. {told}")
    except Exception:
        if not hosts.several():
            raise
        _leave(1, traceback.format_exc() + _OTHERS)


# After an error of the runtime's, such as a connection that another process closed.
_OTHERS = (
    "If another process ended before this one, its log tells why. What was saved is "
    "whole, and the same command goes on from there"
)


def _leave(status: int, told: str, everywhere: bool = False) -> None:
    """Ends the program; `everywhere`: all processes end so, and the first one tells."""
    if hosts.several():
        if everywhere and not hosts.is_first():
            sys.exit(status)
        told = f"process {hosts.number()}: {told}" if hosts.number() else told
    print(told, file=sys.stderr, flush=True)
    if hosts.several() and not everywhere:
        sys.stdout.flush()
        meeting.leave(status)
    sys.exit(status)


def _check_config(argv: Sequence[str]) -> None:
    """Tells of a config file or field that is not there, and of the nearest one."""
    for argument, after in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        if name == "config":
            _make_importable(value if equals else after)
        elif name.startswith(("config.", "noconfig.")):
            field = name.partition(".")[2]
            if field not in (names := fields.field_names()):
                hint = nearest(field, names)
                raise UserError(f"--config.{field}: no such field{hint}")


def _parse(argv: Sequence[str]) -> list[str]:
    """Parses the flags, with errors that name the nearest right flag."""
    try:
        rest = flags.FLAGS(argv)
    except AttributeError as e:
        raise UserError(f"--config is no config: {e}; want a get_config()") from None
    except flags.Error as e:
        raise UserError(f"{_explained(e)} (--help lists the flags)") from None
    if len(rest) > 1:
        raise UserError(f"{rest[1]!r} is not a flag; flags are written --name=value")
    return rest


def _explained(error: flags.Error) -> str:
    """What absl says of a flag; for a field of the config, what type it takes.

    An error inside a config file arrives as a traceback in the message. Of a config
    that refuses its argument (`configs/big.py:en-es`) only what it says is told; any
    other error is a mistake in the file, which its author wants to see whole.
    """
    refused = re.search(r"^ValueError: (.+)\Z", str(error).strip(), re.DOTALL | re.M)
    if "Traceback" in str(error) and refused:
        return f"--config: {refused[1]}"
    if re.search(
        r"^TypeError: get_config\(\) takes .* given\Z", str(error).strip(), re.M
    ):
        return "--config: this config takes no argument after a colon"
    given = re.match(r"flag --config\.(\w+)\.(\w+)=", str(error))
    if not given:
        return str(error)
    default = getattr(fields.SECTIONS[given[1]], given[2])
    return f"{error}; want {type(default).__name__}, such as {default!r}"
