"""Translates standard input: `python -m t2t_jax.translate --workdir=DIR < in > out`."""

import itertools
import sys
from collections.abc import Iterator

from absl import flags

from t2t_jax import command
from t2t_jax.data.corpus import decode_lines
from t2t_jax.decoding.translator import Translator

CHUNK = 1_024  # lines sorted and translated at a time


def translations(
    translator: Translator, lines: Iterator[str], beam, nbest
) -> Iterator[str]:
    """What is printed for each line, chunk by chunk."""
    first = 1
    while chunk := list(itertools.islice(lines, CHUNK)):
        found = translator.hypotheses(chunk, beam=beam, nbest=nbest, first_line=first)
        for number, hypotheses in enumerate(found, first - 1):
            if nbest == 1:
                yield hypotheses[0].text
            else:
                for h in hypotheses:
                    yield f"{number} ||| {h.text} ||| {h.score:.6f}"
        first += len(chunk)


def define_flags():
    command.define_workdir_flags()
    flags.DEFINE_integer("beam", None, "Width of the search; the workdir's by default.")
    flags.DEFINE_integer(
        "nbest",
        1,
        "More than 1 prints NUMBER ||| TRANSLATION ||| SCORE for each hypothesis.",
    )


def main(_):
    given = flags.FLAGS
    translator = Translator.load(given.workdir, given.checkpoint)
    lines = decode_lines(sys.stdin.buffer, "standard input")
    for line in translations(translator, lines, given.beam, given.nbest):
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    command.run(main, define_flags)
