"""Scores a workdir: `python -m t2t_jax.evaluate --workdir=DIR --test=PREFIX`."""

import json

from absl import flags

from t2t_jax import command
from t2t_jax.data.corpus import open_corpora
from t2t_jax.decoding.translator import Translator
from t2t_jax.errors import UserError
from t2t_jax.evaluation.scores import distinct, score_set


def define_flags():
    command.define_workdir_flags()
    flags.DEFINE_string(
        "test",
        None,
        "PREFIX of two text files, such as news for news.en and news.de (or .gz), "
        "seen from here; or tfds:NAME:SPLIT; or grammar:SPLIT; several with commas.",
        required=True,
    )


def main(_):
    given = flags.FLAGS
    translator = Translator.load(given.workdir, given.checkpoint)
    data = translator.config.data
    corpora = open_corpora(given.test, data.source, data.target)
    if not corpora:
        raise UserError(f"--test={given.test!r} names no test set; want a PREFIX")
    for corpus in distinct(corpora):
        scores = score_set(translator, corpus, given.workdir)
        print(json.dumps(scores, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    command.run(main, define_flags)
