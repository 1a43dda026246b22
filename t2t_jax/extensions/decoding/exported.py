"""Translates with CTranslate2 what `export --to=ctranslate2` has written.

CTranslate2 is a library in C++ for CPUs and GPUs. A `Translator` of an export has its
search, scores and attention; all around them, from text to tokens and back, is that of
any other. Its beam is ranked again by our length penalty, which it does not have.

The texts of lines may depend on the lines searched with them, in rare ties: its
products of several rows round otherwise than those of one.
"""

import importlib
import json
import math
import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from t2t_jax.config import Config, SearchOptions
from t2t_jax.costs.timing import timed
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.alignment import Weights
from t2t_jax.decoding.batch_decoding import EMPTY, with_texts
from t2t_jax.decoding.batches import longest_output
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.inputs import Source
from t2t_jax.decoding.results import Hypothesis
from t2t_jax.decoding.scoring import ConfidenceOptions, Pairs
from t2t_jax.decoding.search_options import SearchRequest, beam_search_algorithm
from t2t_jax.decoding.translator import Translator
from t2t_jax.io import cache, sealed
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.io.parts import chunks
from t2t_jax.io.threads import core_count
from t2t_jax.model.layers import compute_dtype
from t2t_jax.model.model import Model, build
from t2t_jax.parallel import processes
from t2t_jax.parallel.machine import processor_name
from t2t_jax.search.algorithm import PENALTIES
from t2t_jax.workdir import Workdir

NAME = "ctranslate2"
ROWS = 32  # sentences of a batch, at most
# Of a search that ends when no better hypothesis is possible: CTranslate2 then goes on
# until half as many again as usual have ended, and hardly any translation differs.
PATIENCE = {"best": 1.5, "first": 1}


def library(name: str = NAME) -> ModuleType:
    """Imports a module of CTranslate2, but not PyTorch.

    It imports PyTorch if it is installed, for PyTorch's own weights; that may not share
    a process with TensorFlow. Its threads wait asleep: threads of one search that spin
    for each other take ten times as long where another program runs.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    hide_torch = "torch" not in sys.modules
    if hide_torch:
        sys.modules["torch"] = None  # an import of it fails as if it were missing
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise UserError(
            f"CTranslate2 cannot be imported ({e}): pip install ctranslate2"
        ) from None
    finally:
        if hide_torch:
            del sys.modules["torch"]


class ExportedMember(NamedTuple):
    """The model of an export: a `Member` without parameters."""

    config: Config
    model: Model
    steps: tuple[int, ...]
    sha256: str  # of the parameters that were exported
    weights: str  # the type of the stored ones

    def parameters_sha256(self) -> str:
        """Returns the digest of the parameters that were exported."""
        return self.sha256

    @property
    def parameters(self) -> NoReturn:
        raise UserError(
            "an export for CTranslate2 has no parameters to look into: give the "
            "workdir that it was made from"
        )

    mesh = parameters


class ExportedSearch(NamedTuple):
    """A beam search by CTranslate2: its options, and the hypotheses to return."""

    options: SearchOptions
    nbest: int


class ExportedTranslator(Translator):
    """A translator that computes with CTranslate2; `Translator.load` makes one.

    Attributes:
      facts: the name and version of the engine, the SHA-256 of the export's manifest,
        and the type of its weights.

    Args:
      engine: a `ctranslate2.Translator`.
    """

    engine, batch_rows = NAME, ROWS
    search_parameters = ()
    phrases = None  # automata are for constraints, which are refused

    def __init__(
        self,
        member: ExportedMember,
        vocabulary: Vocabulary,
        folder: Path,
        engine: Any,
        facts: dict[str, str],
    ):
        self.members, self.vocabulary = (member,), vocabulary
        self._engine, self.facts = engine, facts
        self._extra_length = member.config.decode.extra_length  # as its tables are long
        shared = folder / "shared_vocabulary.json"
        self._source_names, self._names = (
            json.loads((shared if shared.exists() else file).read_text("utf-8"))
            for file in (
                folder / "source_vocabulary.json",
                folder / "target_vocabulary.json",
            )
        )
        self._ids = {name: number for number, name in enumerate(self._names)}

    @property
    def searches_at_once(self) -> int:
        """How many batches it searches at a time, in threads of its own."""
        return self._engine.num_translators

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, CTranslate2 {self.facts['version']})"

    def provenance(self) -> dict:
        """As of any translator, with the engine's facts."""
        return super().provenance() | {"engine": self.facts}

    def check_request(self, request: SearchRequest) -> None:
        """Raises UserError for constraints in the text, and for samples."""
        for name in ("must", "must_not", "samples"):
            if getattr(request, name):
                raise _refused(name)

    def beam_search(self, nbest: int = 1, **search: Any) -> ExportedSearch:
        """A beam search; `search` are fields of `SearchOptions`."""
        options = self.config.decode.override(**search)
        if options.groups > 1:
            raise _refused(f"groups={options.groups}")
        if (extra := self.config.decode.extra_length) > self._extra_length:
            raise UserError(
                f"extra_length={extra}: the export has positions for at most "
                f"{self._extra_length}; export a workdir with a larger "
                "config.decode.extra_length"
            )
        beam_search_algorithm(options, self.vocabulary, nbest)  # checks them
        return ExportedSearch(options, nbest)

    def sampling(self, *_, **__) -> NoReturn:
        """Refused: its random numbers are not those of our seeds."""
        raise _refused("sampling")

    def decode(
        self,
        search: ExportedSearch,
        sources: Sequence[Source],
        constraints: Sequence[Constraints],
        seed: int = 0,
        at_once: int | None = None,
    ) -> list[tuple[Hypothesis, ...]]:
        """Returns the hypotheses of each source, in order; at least one for each.

        Args:
          at_once: how many batches few lines are divided into: `searches_at_once` by
            default; 1 where other threads search beside this one.
        """
        results: list[tuple[Hypothesis, ...]] = [(EMPTY,)] * len(sources)
        searched = (row for row, source in enumerate(sources) if source.ids)
        rows = sorted(searched, key=lambda row: len(sources[row].ids))
        prefixes = {row: self._prefix(constraints[row]) for row in rows}
        before = dict.fromkeys(rows, 0.0)  # the log-probabilities of prefixes
        begun = [row for row in rows if prefixes[row]]
        pairs = [(sources[row].ids, prefixes[row]) for row in begun]
        if pairs:
            log_probs = self.token_log_probs(pairs)
            before |= zip(begun, map(math.fsum, log_probs), strict=True)

        def begin(batch: Sequence[int]) -> list[Any]:
            limits = [self._limit(sources[row]) for row in batch]
            return self._engine.translate_batch(
                [self._pieces(sources[row].ids) for row in batch],
                [[self._names[i] for i in prefixes[row]] for row in batch],
                beam_size=search.options.beam,
                num_hypotheses=search.options.beam,
                patience=PATIENCE[search.options.stop],
                length_penalty=_exponent(search.options),
                no_repeat_ngram_size=search.options.no_repeat_ngram,
                repetition_penalty=search.options.repetition_penalty,
                max_input_length=0,
                max_decoding_length=max(limits),
                min_decoding_length=0,
                return_scores=True,
                return_end_token=True,  # its length counts, as in our length penalty
                asynchronous=True,
            )

        size = min(ROWS, -(-len(rows) // (at_once or self.searches_at_once))) or 1
        batches = [[*batch] for batch in chunks(rows, size)]
        for batch, futures in [(batch, begin(batch)) for batch in batches]:
            for row, future in zip(batch, futures, strict=True):
                result = future.result()
                # Longer than the line may be, beside lines that may.
                if max(map(len, result.hypotheses)) > self._limit(sources[row]):
                    result = begin([row])[0].result()
                results[row] = self._hypotheses(search, result, before[row])
        return results

    def _hypotheses(
        self, search: ExportedSearch, result: Any, before: float
    ) -> tuple[Hypothesis, ...]:
        """Our hypotheses of a result, ranked by our score."""
        options = search.options
        divisor, exponent = PENALTIES[options.penalty], _exponent(options)
        ranked = []
        for names, score in zip(result.hypotheses, result.scores, strict=True):
            log_prob = before + score * len(names) ** exponent
            score = float(log_prob / divisor(len(names), options.alpha))
            ids = tuple(self._ids[name] for name in names)
            ended = ids[-1:] == (self.vocabulary.eos,)
            ranked.append((ids, (score, log_prob, ended)))
        ranked.sort(key=lambda entry: (not entry[1][2], -entry[1][0]))  # ended first
        return with_texts(self.vocabulary, *zip(*ranked[: search.nbest], strict=True))

    def _limit(self, source: Source) -> int:
        return longest_output(len(source.ids), self.config.decode)

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of a source without its end, which CTranslate2 adds."""
        return [self._source_names[i] for i in ids[:-1]]

    def _prefix(self, constraints: Constraints) -> list[int]:
        """The tokens that a translation begins with; the last word is a whole one."""
        begun = [constraints.begun] if constraints.begun else []
        return [*constraints.prefix, *chain(*self.vocabulary.encode(begun))]

    def token_log_probs(self, pairs: Pairs) -> list[list[float]]:
        """Computes the log-probability of each token of encoded targets."""
        eos = self.vocabulary.eos
        targets = [ids[:-1] if ids[-1:] == [eos] else ids for _, ids in pairs]
        results = self._engine.score_batch(
            [self._pieces(source) for source, _ in pairs],
            [[self._names[i] for i in ids] for ids in targets],
            max_batch_size=ROWS,
            max_input_length=0,
        )
        # It scores the end of each; that of a target that did not end is left out.
        return [
            result.log_probs[: len(ids)]
            for result, (_, ids) in zip(results, pairs, strict=True)
        ]

    def confidences(
        self, measure: str, options: ConfidenceOptions, pairs: Pairs
    ) -> list[float]:
        """Computes `log_prob`; other measures are refused."""
        if measure != "log_prob":
            raise _refused(f"confidence={measure}", "confidence=log_prob")
        rows = zip(self.token_log_probs(pairs), pairs, strict=True)
        return [math.fsum(log_probs) / len(ids) for log_probs, (_, ids) in rows]

    def alignment_weights(self, pairs: Pairs, layer: int | None = None) -> Weights:
        """Computes the attention that aligns encoded pairs, as the model aligns."""
        if layer is not None:
            raise _refused(f"layer={layer}")
        weights: Weights = {}
        order = sorted(range(len(pairs)), key=lambda row: len(pairs[row][1]))
        for batch in map(list, chunks(order, ROWS)):
            eos = self.vocabulary.eos
            results = self._engine.translate_batch(
                [self._pieces(pairs[row][0]) for row in batch],
                [[self._names[i] for i in pairs[row][1] if i != eos] for row in batch],
                beam_size=1,
                max_input_length=0,
                max_decoding_length=max(len(pairs[row][1]) for row in batch),
                min_decoding_length=0,
                return_end_token=True,
                return_attention=True,
            )
            for row, result in zip(batch, results, strict=True):
                # It leaves out the end of both sides, which is in no word.
                shape = len(pairs[row][1]), len(pairs[row][0])
                weights[row] = weights_ts = np.zeros(shape)
                for t, weights_s in enumerate(result.attention[0][: shape[0]]):
                    weights_ts[t, : len(weights_s)] = weights_s
        return weights


def _exponent(options: SearchOptions) -> float:
    """CTranslate2's `length_penalty`: it divides by the length to this power.

    GNMT's penalty grows more slowly than the length to its power. With half of it, no
    longer hypotheses of a worse score crowd out better ones (docs/results/serving.md).
    """
    return options.alpha * {"none": 0.0, "gnmt": 0.5}.get(options.penalty, 1.0)


def _refused(what: str, instead: str = "") -> UserError:
    instead = f"ask for {instead}, or " * bool(instead)
    return UserError(
        f"{what}: CTranslate2 cannot; {instead}use the engine jax, with the workdir of "
        "the run"
    )


def load(
    workdir: Workdir,
    checkpoint: str | int | None = None,
    dtype: str | None = None,
    weights: str = "float32",
) -> ExportedTranslator:
    """Loads an export of `tools/bridges` for CTranslate2, as `Translator.load` does.

    Args:
      workdir: the one in the export.
      checkpoint, dtype, weights: None, None and `float32`, or those it was made from.

    Raises:
      UserError: it is damaged, of another version, or asked for as what it is not.
    """
    folder = Path(workdir.export)
    if trouble := sealed.damage(folder):
        raise UserError(f"{folder} is damaged: {trouble}; export it again")
    if processes.distributed():
        raise UserError(f"{folder}: CTranslate2 wants one process; use --part=I/N")
    config, vocabulary = workdir.config_and_vocabulary()
    notes = sealed.notes(folder)
    steps, stored = tuple(notes["steps"]), notes["weights"]
    for name, value, own in (
        ("checkpoint", checkpoint, ",".join(map(str, steps))),
        ("dtype", dtype, compute_dtype(config.model).name),
        ("weights", weights, stored),
    ):
        default = "float32" if name == "weights" else None
        if str(value) not in (str(default), own):
            raise UserError(
                f"--{name}={value}: {folder} has {own}; leave it out, or export again"
            )
    model = build(config.model, *vocabulary.sizes)
    member = ExportedMember(config, model, steps, notes["parameters_sha256"], stored)
    module, sha256 = library(), sealed.fingerprint(folder)
    facts = {"name": NAME, "version": module.__version__, "export_sha256": sha256}
    facts["weights"] = stored
    opened = partial(_open, module, folder)
    translator = partial(ExportedTranslator, member, vocabulary, folder)
    cores = core_count()
    threads = (cores, 1)
    if cores > 1 and not module.get_cuda_device_count():
        shape = facts | {"export_sha256": repr(config.model)}
        machine = {"processor": processor_name(), "cores": cores, "gain": GAIN}
        key = cache.cache_key(engine=shape, **machine)
        measured = cache.cache_folder() / "engines" / key

        def measure(draft: Path) -> None:
            divisions = (cores, 1), (1, cores)
            each, together = (
                _seconds(translator(opened(*d), facts)) for d in divisions
            )
            chosen = divisions[each > GAIN * together]
            (draft / "threads.json").write_text(json.dumps(chosen))

        cache.build_once(measured, measure)
        threads = json.loads((measured / "threads.json").read_text())
    return translator(opened(*threads), facts)


def _open(module: ModuleType, folder: Path, translators: int, threads: int) -> Any:
    """Opens an export; so many translators have so many threads each."""
    on_gpu = module.get_cuda_device_count() > 0
    try:
        return module.Translator(
            str(folder),
            device="cuda" if on_gpu else "cpu",
            inter_threads=1 if on_gpu else translators,
            intra_threads=threads,
        )
    except (RuntimeError, ValueError) as e:
        raise UserError(
            f"{folder}: CTranslate2 {module.__version__} does not open it: "
            f"{first_line(e)}; export it again"
        ) from None


LINES, LENGTH, REPEATS = 8, 12, 3  # of the trial of an engine
GAIN = 1.2  # of all cores for one search, or else each has its own


def trial_lines(vocabulary: Vocabulary) -> list[str]:
    """Made-up lines, on which engines are timed."""
    source, dice = vocabulary.source, random.Random(0)
    special = {source.pad, source.bos, source.eos, source.unknown, *source.never}
    ordinary = [i for i in range(len(source)) if i not in special]
    drawn = [dice.choices(ordinary, k=LENGTH) for _ in range(LINES)]
    return [" ".join(text.split()) for text in source.decode(drawn)]


def _seconds(translator: ExportedTranslator) -> float:
    """The shortest time in which it translates single lines, as many at once."""
    search = translator.beam_search()
    sources, constraints = translator.encode(trial_lines(translator.vocabulary))
    work = partial(translator.decode, search, sources, constraints)
    return min(islice(timed(work), REPEATS))
