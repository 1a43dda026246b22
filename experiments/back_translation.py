"""What is back-translation worth to a translator with half of its parallel text?

Half of a parallel text stays parallel; of the other half only the German side is kept,
as text that nobody has translated. A model from German to English, trained on the first
half, translates it back. FOLDER holds train.en and train.de, val.* and
test_2016_flickr.*, as of Multi30k, unzipped:

    half=$(($(wc -l < FOLDER/train.en) / 2))
    for language in en de; do
      head -n $half FOLDER/train.$language > FOLDER/half.$language
    done
    tail -n +$((half + 1)) FOLDER/train.de > FOLDER/mono.de

    python -m t2t_jax.main --config=multi30k:half_hour --workdir=BACK \\
        --config.data.dir=FOLDER --config.data.train=half \\
        --config.data.source=de --config.data.target=en \\
        --config.data.symbols='<bt>,<blank>'

    back="python -m t2t_jax translate --workdir=BACK --input=FOLDER/mono.de"
    $back --pairs=FOLDER/beam
    $back --pairs=FOLDER/sampled --sample
    $back --pairs=FOLDER/top10 --sample --top_k=10
    $back --pairs=FOLDER/noised --noise=drop@0.1,blank@0.1,swap@3
    $back --pairs=FOLDER/tagged --tag='<bt>'

    python -m t2t_jax experiment back_translation --workdir=DIR \\
        --config.data.dir=FOLDER --back=$PWD/BACK

A relative --back would be relative to FOLDER, as `config.data.tokenizer` is.

Rows differ in their training text alone: they have the tokens of BACK and as many
steps. `--pairs=beam,tagged` leaves out the others. The row "full parallel" is what a
person's translations of the second half are worth: the upper bound.

Expect of a small text: what a search finds helps most, and sampling and noise cost;
with much parallel text it is the other way round (Edunov et al. 2018, section 5.3). A
tag gains what noise gains, without losing words (Caswell et al. 2019).
"""

from experiments import _texts
from t2t_jax.tools.experiment import Experiment, Row, with_fields
from t2t_jax.tools.experiment.plots import bars

# Names of pairs in FOLDER -> the names of rows.
PAIRS = {
    "beam": "+ beam",
    "sampled": "+ sampling",
    "top10": "+ top-k 10",
    "noised": "+ beam, noised",
    "tagged": "+ beam, tagged",
}
ALL = ",".join(PAIRS)
COLUMN = "test_2016_flickr.bleu"


def get_experiment(seeds=3, steps=3000, pairs=ALL, back=""):
    """Builds the experiment.

    Args:
      seeds: of each row.
      steps: of every run.
      pairs: the pairs to add, separated by commas; each is a row.
      back: the workdir of the model that made them, whose tokenizer all rows have;
        empty: each row trains one of its text.
    """
    changes = {
        "data.symbols": "<bt>,<blank>",  # in all rows, so that tokens are equal
        "data.tokenizer": f"{back}/tokenizer.model" if back else "",
    }
    base = _texts.short("multi30k:half_hour", steps, changes)
    names = [name for name in map(str.strip, pairs.split(",")) if name]
    if unknown := [name for name in names if name not in PAIRS]:
        raise ValueError(f"unknown pairs {', '.join(unknown)}; want {', '.join(PAIRS)}")
    texts = {"half": "half"}
    texts |= {PAIRS[name]: f"half,{name}" for name in names}
    texts |= {"full parallel": "train"}
    return Experiment(
        rows=[
            Row(name, with_fields(base, {"data.train": text}), seeds=seeds)
            for name, text in texts.items()
        ],
        columns=[
            *(COLUMN, "test_2016_flickr.chrf", "test_2016_flickr.perplexity"),
            *("tokens", "minutes"),
        ],
        compared=COLUMN,
        baseline="half",
        note=(
            ""
            if back
            else "Each row has tokens of its own: do not compare their perplexities."
        ),
        plot=plot,
    )


def plot(results):
    """Draws BLEU of each training text."""
    return bars(results, COLUMN, title="BLEU by training text", baseline="half")
