"""Measures how often the language of a line is guessed right.

    python -m benchmarks.languages --served=en,de --test=newstest2013

For each set and language, of its first --lines lines: the share that is guessed right,
the share that has a confidence of 0.9 or more, of these the share that is right, and
the share that stays as it is at the default --min_served. Of a language that is not
served, only the last: it should be all.
"""

from pathlib import Path

import numpy as np
from absl import flags

from benchmarks import measuring, run
from t2t_jax.data.corpus import side_file
from t2t_jax.data.text_files import read_lines
from t2t_jax.extensions.text.language_identification import Guesser
from t2t_jax.tools.serve.settings import Settings


def define_flags():
    flags.DEFINE_list("served", ["en", "de"], "Languages that may be guessed.")
    flags.DEFINE_list("test", None, "Prefixes of text files.", required=True)
    flags.DEFINE_list("languages", ["en", "de"], "Endings of these files.")
    flags.DEFINE_integer("lines", 2_000, "Lines of each file.", lower_bound=1)
    measuring.define_flags(rounds=None)


def main(_):
    args, rows = flags.FLAGS, []
    measuring.begin(args)
    guess = Guesser(args.served).guess
    for prefix in map(Path, args.test):
        for code in args.languages:
            lines = [*filter(str.strip, read_lines(side_file(prefix, code)))]
            guesses = [guess(line) for line in lines[: args.lines]]
            right = np.array([identified.code == code for identified in guesses])
            sure = np.array([identified.confidence >= 0.9 for identified in guesses])
            stay = np.mean(
                [identified.among < Settings.min_served for identified in guesses]
            )
            row = {"set": prefix.name, "language": code, "lines": len(guesses)}
            if code in args.served:
                row |= {"right": right.mean(), "sure": sure.mean()}
                row |= {"right_if_sure": right[sure].mean() if sure.any() else None}
            else:
                row |= dict.fromkeys(("right", "sure", "right_if_sure"))
            rows.append(row | {"stay": float(stay)})
    measuring.publish(rows, args.output)


if __name__ == "__main__":
    run(main, define_flags)
