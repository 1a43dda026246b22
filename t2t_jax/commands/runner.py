"""Runs a command: parses flags, connects processes, turns errors into messages."""

import errno
import logging
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType

import absl.logging
from absl import app, flags

from t2t_jax import config as fields
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_ideas_flag, define_process_flags, help_text
from t2t_jax.io import ideas, interruption, messages
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import closed_pipe_ends, print_any_character, say
from t2t_jax.parallel import processes, rendezvous

# Errors of a disk or file system that the user can fix.
_STORAGE_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE),
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY),
}
# Errors of Python itself that the user can fix -> how.
_PYTHON_ERRORS = {
    "can't start new thread": "this process may have no more threads or memory; raise "
    "its limits (`ulimit -u`, `ulimit -v`) or those of the container",
    "Could not determine home directory": "set HOME, or set T2T_JAX_CACHE to a folder "
    "for prepared text and give paths without ~",
}
# Printed after a runtime error, such as a connection that another process closed.
_OTHER_PROCESSES = (
    "If another process ended before this one, its log says why. Everything saved is "
    "complete, and the same command continues from there"
)


def run(name: str, command: ModuleType) -> None:
    """Runs a command. Errors that the user can fix end it with status 2, no traceback.

    Args:
      name: of the command, as it is typed.
      command: a module of `commands/` with `define_flags` and `main`, which calls
        `set_up_process` before it uses JAX. Optional:
        `PRESET` is the --config to use if none is given, or `default_config()` returns
        it, or None if the command takes none; `DISTRIBUTED` is True if it may run in
        several processes; `WORD` names the argument that is not a flag, if the command
        takes one; `WORDS` names such arguments, if it takes any number of them;
        `introduction()` returns the first part of --help, by default the docstring.
    """
    print_any_character()
    with interruption.watched(ends=True):
        _run(name, command)


def _run(name: str, command: ModuleType) -> None:
    log = logging.getLogger("t2t_jax")
    log.propagate = False  # absl's handler of the root logger would print it again
    log.addHandler(_Warnings())
    argv = [*sys.argv]
    default = getattr(command, "PRESET", None)
    if hasattr(command, "default_config"):
        default = command.default_config()
    # --help prints our own text instead of absl's.
    wants_help = any(a in ("--help", "-help", "-h", "--h") for a in argv[1:])
    if not wants_help:
        _catch_errors(_import_ideas, argv)
        if default:
            if not any(re.match("--?config(=|$)", argument) for argument in argv):
                argv.insert(1, f"--config={default}")
            argv = _catch_errors(_resolve_config, argv)
        _catch_errors(_check_fields, argv)
    # Flags are defined here, not on import: a program that imports `train` has its own
    # flags, and names would clash.
    library_flags = {*flags.FLAGS}  # flags of libraries, which --help leaves out
    _catch_errors(lambda _: command.define_flags(), argv)
    define_ideas_flag()
    distributed = getattr(command, "DISTRIBUTED", False)
    if distributed:
        define_process_flags()
    if wants_help:
        defined = [flag for flag in flags.FLAGS if flag not in library_flags]
        introduction = getattr(command, "introduction", lambda: command.__doc__)
        with closed_pipe_ends():
            print(help_text(name, introduction(), defined))
        return

    def main(argv: Sequence[str]):
        # --verbosity keeps the log lines of libraries.
        if not any(a.startswith(("-v", "--v")) for a in sys.argv[1:]):
            _silence_libraries()
        if distributed:
            _catch_errors(_connect_processes, argv)
        _catch_errors(command.main, argv)

    word = getattr(command, "WORD", None)
    takes_words = hasattr(command, "WORDS")
    app.run(
        main,
        argv=argv,
        flags_parser=lambda argv: _catch_errors(
            lambda a: _parse(a, word, takes_words), argv
        ),
    )


class _Warnings(logging.Handler):
    """Prints the program's own log records as plain lines, above any progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def _silence_libraries() -> None:
    """Hides log lines of libraries that repeat what this program reports itself."""
    absl.logging.set_verbosity(absl.logging.WARNING)
    # Orbax logs errors of writing a checkpoint and raises them; raised is enough.
    absl.logging.get_absl_logger().addFilter(
        lambda record: "orbax" not in record.pathname
    )
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = _unraisable


def _unraisable(unraisable) -> None:
    """Hides the error that TensorStore prints for each array after a failed write."""
    if "Event loop is closed" not in str(unraisable.exc_value):
        sys.__unraisablehook__(unraisable)


def _connect_processes(_) -> None:
    """Connects to the other processes; only process 0 prints messages afterwards."""
    args = flags.FLAGS
    if args.num_processes != 1 and rendezvous.may_have_others():
        from t2t_jax.parallel.process_setup import set_up_process

        set_up_process()
    rendezvous.initialize(args.coordinator_address, args.num_processes, args.process_id)
    if not processes.is_first():
        messages.silence()


def _catch_errors(function: Callable, argv: Sequence[str]):
    """Calls a function and turns what it raises into a message and an exit status."""
    try:
        with closed_pipe_ends():
            return function(argv)
    except UserError as e:
        _exit(2, f"error: {e}", getattr(e, "everywhere", False))
    except KeyboardInterrupt as e:
        message = str(e) or f"SIGINT: {interruption.STOPPED}"
        everywhere = getattr(e, "everywhere", False)
        _exit(128 + getattr(e, "signum", signal.SIGINT), message, everywhere)
    except OSError as e:
        if e.errno not in _STORAGE_ERRORS:
            raise
        _exit(
            2, f"error: {e}. Everything written before is complete; fix this and retry"
        )
    except Exception as e:
        if fix := _PYTHON_ERRORS.get(reason := str(e).rstrip(".")):
            _exit(2, f"error: {reason}: {fix}")
        if not processes.distributed():
            raise
        _exit(1, traceback.format_exc() + _OTHER_PROCESSES)


def _exit(status: int, message: str, everywhere: bool = False) -> None:
    """Ends the program with a message.

    Args:
      everywhere: True if all processes end for this reason; only process 0 prints it.
    """
    if processes.distributed():
        if everywhere and not processes.is_first():
            sys.exit(status)
        if processes.index():
            message = f"process {processes.index()}: {message}"
    print(messages.printable(message), file=sys.stderr, flush=True)
    # The other processes do not know of this error, and a normal exit waits for them,
    # while they may be waiting for this one.
    if processes.distributed() and not everywhere:
        sys.stdout.flush()
        rendezvous.exit_now(status)
    sys.exit(status)


def _import_ideas(argv: Sequence[str]) -> None:
    """Imports the modules of --ideas, before the config that they add to is read."""
    for module in ideas.named(argv):
        ideas.load(module)


def _resolve_config(argv: Sequence[str]) -> list[str]:
    """Replaces presets by their files in --config."""
    argv = [*argv]
    for i, argument in enumerate(argv):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        if name == "config" and equals:
            argv[i] = f"--config={config_files.resolve(value)}"
        elif name == "config" and i + 1 < len(argv):  # `--config NAME`, two words
            argv[i + 1] = config_files.resolve(argv[i + 1])
    return argv


def _check_fields(argv: Sequence[str]) -> None:
    """Refuses a field that the config does not have."""
    for field in config_files.given_fields(argv):
        names = fields.field_names(options=".options." in field)
        if field not in names:
            hint = fields.similar_field(field)
            raise UserError(f"--config.{field}: no such field{hint}")


def _parse(
    argv: Sequence[str], word: str | None = None, takes_words: bool = False
) -> list[str]:
    """Parses the flags; error messages name the most similar flag.

    Args:
      word: the name of the argument that is not a flag; None if there is none.
      takes_words: True if there may be any number of such arguments.
    """
    try:
        words = flags.FLAGS(argv)
    except flags.Error as e:
        raise UserError(f"{config_files.explain(e)} (--help lists the flags)") from None
    if unread := {*flags.FLAGS.ideas} - {*ideas.imported}:
        raise UserError(
            f"--ideas={min(unread)} is not on the command line itself; give it there, "
            "not in a file of flags"
        )
    surplus = words[1 if word is None else 2 :]
    if surplus and not takes_words:
        if word and " " in surplus[0]:  # two sentences in quotes, not one without
            from_file = "; several go into a file: --input=FILE"
            hint = from_file if "input" in flags.FLAGS else ""
            raise UserError(f"got {len(words) - 1} times {word}, want one{hint}")
        quoted = f"; put a {word} of several words in quotes" if word else ""
        raise UserError(
            f"{surplus[0]!r} is not a flag; flags are written --name=value{quoted}"
        )
    return words
