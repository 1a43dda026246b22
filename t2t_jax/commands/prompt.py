"""An interactive prompt: type a sentence, read its translation."""

import contextlib
import time

from t2t_jax.config import SearchOptions
from t2t_jax.decoding.results import Translation
from t2t_jax.decoding.search_options import SHARED, option_names
from t2t_jax.decoding.translator import Translator
from t2t_jax.io import interruption
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.tasks.task import Task
from t2t_jax.text.words import words

HELP = """\
Type a sentence to translate it. About the last sentence:
  :nbest N      show the N best translations
  :sample N     draw N translations at random
  :align        show which source word each word comes from
  :score TEXT   show the log-probability of TEXT as its translation
  :prefix TEXT  show the best translation that begins with TEXT
For the next sentences:
  :beam N       set the beam width
:help shows this text, :quit ends."""

HELP_WITHOUT_SOURCE = """\
Type the beginning of a text to have it continued; an empty line is a text from nothing.
About the last one:
  :nbest N      show the N best texts
  :sample N     draw N texts at random
For the next ones:
  :beam N       set the beam width
At any time:
  :score TEXT   show the log-probability of TEXT
:help shows this text, :quit ends."""


MAX_HYPOTHESES = 1_000  # time and memory grow with their number


class Prompt:
    """Translates typed sentences and answers commands, one line at a time.

    Args:
      options: for `translator.translate`.
      task: answers the lines; None for the translator alone.
    """

    def __init__(self, translator: Translator, options: dict, task: Task | None = None):
        self._translator, self._task = translator, task
        self._options = options
        self._last: Translation | None = None
        self._has_source = translator.model.has_source
        self._help = HELP if self._has_source else HELP_WITHOUT_SOURCE
        self._commands = {
            "nbest": self._nbest,
            "sample": self._sample,
            "score": self._score,
            "beam": self._beam,
            "help": lambda _: self._help,
        }
        if self._has_source:
            self._commands |= {"align": self._align, "prefix": self._prefix}
        # What may be typed before any sentence.
        self._first = (
            {"beam", "help"} if self._has_source else {"beam", "help", "score"}
        )

    def run(self) -> None:
        """Reads and answers lines until end of input or `:quit`."""
        with contextlib.suppress(ImportError):
            # The import alone gives `input` line editing and a history.
            import readline  # noqa: F401
        model_name = self._translator.what
        print(f"{model_name}. {self._beam('')} :help lists the commands.")
        with interruption.at_a_prompt():
            self._answer_lines(model_name)

    def _answer_lines(self, model_name: str) -> None:
        while True:
            try:
                line = input(f"{model_name.partition(' ')[0]}> ")
            except EOFError:
                return print()
            except interruption.Interrupted:  # by SIGTERM
                raise
            except KeyboardInterrupt:  # Ctrl-C discards the line only
                print()
                continue
            except UnicodeDecodeError as e:
                print(f"error: the input is not {e.encoding}; type it again")
                continue
            if line.strip() in (":quit", ":q"):
                return None
            try:
                print(self.answer(line))
            except UserError as e:
                print(f"error: {e}")
            except interruption.Interrupted:
                raise
            except KeyboardInterrupt:
                print("stopped")

    def answer(self, line: str) -> str:
        """Returns the text to print for a typed line."""
        if not line.strip() and self._has_source:
            return self._help if self._last is None else ""
        if not line.startswith(":"):
            start = time.monotonic()
            self._last = self._answer(line, "translate", self._options)
            seconds = time.monotonic() - start
            if len(self._last.hypotheses) > 1:
                return _format_nbest(self._last)
            return (
                f"{self._last.text}\n    score {self._last.score:.3f}, {seconds:.1f} s"
            )
        name, _, argument = line[1:].strip().partition(" ")
        if name not in self._commands:
            raise UserError(
                f":{name} is not a command{did_you_mean(name, self._commands)}"
            )
        if self._last is None and name not in self._first:
            raise UserError(f":{name} needs a sentence; type one first")
        return self._commands[name](argument.strip())

    def _nbest(self, argument: str) -> str:
        nbest = _parse_count(argument, 4)
        # `nbest` must not exceed the beam, and groups divide it.
        search = self._search()
        width = -(-max(nbest, search.beam) // search.groups) * search.groups
        options = {**self._options, "nbest": nbest, "beam": width}
        return self._format_answers("translate", options)

    def _sample(self, argument: str) -> str:
        samples = _parse_count(argument, 4)
        seed = time.time_ns() % (1 << 32)
        selected = self._select_options(*SHARED, "prefix", "must_not")
        return self._format_answers(
            "sample", {"samples": samples, "seed": seed, **selected}
        )

    def _align(self, argument: str) -> str:
        if self._task and "alignments" in self._task.unused:
            raise UserError(
                ":align links words of a translation to those of its source; "
                f"the answers of {self._translator.what} are no such words"
            )
        pair = self._last.source, self._last
        texts = self._last.source, self._last.text
        source, target = ([x[b:e] for b, e in words(x)] for x in texts)
        links = self._translator.align([pair])[0].links
        return "\n".join(f"    {target[j]}  <-  {source[i]}" for i, j in links)

    def _score(self, argument: str) -> str:
        if not argument:
            raise UserError("write the text after :score")
        pair = self._last.source if self._last else "", argument
        score = self._translator.score(
            [pair], **self._select_options("alpha", "penalty")
        )[0]
        pieces = zip(score.pieces, score.log_probs, strict=True)
        listed = "  ".join(f"{piece} {log_prob:.2f}" for piece, log_prob in pieces)
        return (
            f"    score {score.score:.3f}, log_prob {score.log_prob:.3f}\n    {listed}"
        )

    def _prefix(self, argument: str) -> str:
        if not argument:
            raise UserError("write how the translation begins after :prefix")
        options = {**self._options, "prefix": argument}
        return self._format_answers("translate", options)

    def _beam(self, argument: str) -> str:
        if argument:
            self._options["beam"] = self._search(beam=_parse_count(argument, 0)).beam
        return f"Beam {self._search().beam}."

    def _answer(self, line: str, method: str, options: dict) -> Translation:
        """Answers a line by a method of the translator, as the task says."""

        def search(translator: Translator, lines, **line_options) -> list[Translation]:
            return getattr(translator, method)(lines, **options, **line_options)

        if self._task is None:
            return search(self._translator, [line])[0]
        return self._task.respond(self._translator, [line], search)[0]

    def _format_answers(self, method: str, options: dict) -> str:
        """Formats other answers to the last line."""
        return _format_nbest(self._answer(self._last.source, method, options))

    def _select_options(self, *names: str) -> dict:
        return {name: self._options[name] for name in names if name in self._options}

    def _search(self, **changes: int) -> SearchOptions:
        """The options of the search, some changed; raises UserError as `override`."""
        options = self._select_options(*option_names(SearchOptions)) | changes
        return self._translator.config.decode.override(**options)


def _parse_count(text: str, default: int) -> int:
    if not text:
        return default
    if not text.isdecimal() or not 1 <= int(text) <= MAX_HYPOTHESES:
        raise UserError(f"{text!r} is not a valid number; want 1 to {MAX_HYPOTHESES:,}")
    return int(text)


def _format_nbest(translation: Translation) -> str:
    return "\n".join(f"    {h.score:8.3f}  {h.text}" for h in translation.hypotheses)
