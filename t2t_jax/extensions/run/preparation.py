"""Opens a text that is prepared in parts; does so on Apache Beam, TFDS's own engine.

Beam hands the numbers of the parts to its workers, and makes again what a worker has
lost; the parts themselves are those of `extensions/data/parts.py`, in the folder that
all workers see. Nothing but numbers goes through the pipeline. Merging is done here,
between two pipelines.

    pip install apache-beam
    python -m t2t_jax prepare --config=... --runner=beam --parts=64 \\
        --beam_options='--runner=FnApiRunner --direct_running_mode=multi_processing \\
            --direct_num_workers=4'
"""

import dataclasses
import functools
import hashlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from t2t_jax.config import Config
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.tokenizers.training import existing_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.data.parts import STAGES, TextInParts
from t2t_jax.io import ideas
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import locate
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import open_text


def text_of(config: Config, parts: str) -> TextInParts:
    """Opens the training text of a config, whose parts are in a folder."""
    task = task_of(config)
    training, _, _ = open_text(task)
    origin: dict[str, Any] = {"config.task": dataclasses.asdict(config.task)}
    for name in ("init_from", "init_parts", "remap_vocabulary"):
        origin[f"config.train.{name}"] = getattr(config.train, name)
    for name in ("tokenizer", "source_tokenizer"):
        if existing := existing_tokenizer(config.data, name):
            sha256 = hashlib.sha256(existing.model).hexdigest()
            origin[f"config.data.{name}, SHA-256"] = sha256
    return TextInParts(training, task.data(), task, locate(parts), origin)


def prepare_on_beam(
    text: TextInParts,
    config: Config,
    vocabulary: Callable[[], Vocabulary],
    parts: int,
    options: str,
) -> Pairs:
    """Runs both stages and both merges.

    Args:
      text: Opened here, as the workers open it from the config.
      vocabulary: Loads or trains the tokenizer.
      parts: Their number.
      options: Of the pipelines, as on a command line.

    Raises:
      UserError: Beam is not installed or refuses an option, or a stage fails.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as e:
        raise UserError(
            f"--runner=beam needs Apache Beam ({e}): pip install apache-beam"
        ) from None
    try:
        pipeline_options = PipelineOptions(shlex.split(options))
    except (ValueError, SystemExit) as e:
        raise UserError(f"--beam_options={options!r}: {e}") from None
    merges = {"hash": lambda: text.merge_hashes(vocabulary), "encode": text.merge}
    for stage in STAGES:
        make = functools.partial(
            _make_part, stage, parts, config, str(text.parts), [*ideas.imported]
        )
        try:
            with beam.Pipeline(options=pipeline_options) as pipeline:
                numbers = pipeline | beam.Create(range(1, parts + 1))
                # So that the numbers are spread over the workers.
                numbers | beam.Reshuffle() | stage >> beam.Map(make)
        except Exception as e:  # of Beam, with the traceback of a worker
            raise UserError(f"stage {stage} on Beam: {str(e).splitlines()[-1]}") from e
        pairs = merges[stage]()
    return pairs


def _make_part(
    stage: str,
    count: int,
    config: Config,
    parts: str,
    modules: Sequence[str],
    number: int,
) -> int:
    """Makes a part, in a worker."""
    for module in modules:
        ideas.load(module)
    text = text_of(config, parts)
    getattr(text, stage)((number, count))
    return number
