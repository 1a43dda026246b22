"""Text in, text out: what the commands and notebooks use.

A line's translation does not depend on the lines beside it: every line goes through
the same shapes whatever is translated with it (`decoding/shapes.py`), on however many
devices (`decoding/devices.py`).

Shape suffixes: b batch rows, s source, n hypotheses, t target.
"""

import copy
from collections.abc import Sequence
from functools import cached_property

import jax
from etils import epath

from t2t_jax import config as fields
from t2t_jax.config import Config, DecodeConfig
from t2t_jax.data.tokenizer import Vocabulary
from t2t_jax.decoding import scoring
from t2t_jax.decoding.batch_decoding import NOTHING, check_room, decode_batch
from t2t_jax.decoding.constraints import constraints_for
from t2t_jax.decoding.devices import replicated
from t2t_jax.decoding.inputs import InputReader, Member, Source, check_lines
from t2t_jax.decoding.phrases import Phrases
from t2t_jax.decoding.programs import Search
from t2t_jax.decoding.results import (
    Alignment,
    AttentionMaps,
    Hypothesis,
    Score,
    Translation,
)
from t2t_jax.decoding.shapes import longest_output
from t2t_jax.model.layers import Parameters, compute_dtype
from t2t_jax.model.model import Model, build
from t2t_jax.parallel import processes
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.search.algorithm import Algorithm
from t2t_jax.search.beam import STOPS, BeamSearch
from t2t_jax.search.length_penalty import PENALTIES
from t2t_jax.search.sampling import Sampling, check_sampling
from t2t_jax.terminal.errors import UserError, did_you_mean
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.workdir.workdir import Workdir


class Translator:
    """A trained model, or an ensemble of some, that translates lines of text.

    Attributes:
      vocabulary: of all members.
      members: the models; `config`, `model`, `parameters` and `steps` are the first's.

    Args:
      devices: what computes; all devices of this process if None. Results do not
        depend on how many there are.
    """

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        parameters: Parameters,
        steps: Sequence[int] = (),
        devices: Sequence[jax.Device] | None = None,
    ):
        parameters = replicated(parameters, devices)
        self.members = (Member(config, model, parameters, tuple(steps)),)
        self.vocabulary = vocabulary

    @classmethod
    def load(
        cls,
        workdir: Workdir | epath.PathLike | Sequence[epath.PathLike],
        checkpoint: str | int | None = None,
        dtype: str | None = None,
    ) -> "Translator":
        """Loads a workdir for translation. Runs no code of it.

        Args:
          workdir: a folder, or gs://BUCKET/FOLDER; a list of them is an ensemble, which
            predicts with the mean of their probabilities.
          checkpoint: `average` (of the last `config.decode.average` checkpoints,
            section 6.1), `average:N` of the last N, `last`, `best` (of all
            evaluations, by dev BLEU), `best:N` for the average of the N best, a
            step, or steps to average such as `"1000,2000"`;
            `config.decode.checkpoint` where not given.
          dtype: of activations, `float32` or `bfloat16`; as in training if not given.

        Raises:
          UserError: not a workdir, or no such checkpoint, or none that is intact. One
            that is damaged is named, and the one before it takes its place, unless it
            or a number was asked for. Or an ensemble of several vocabularies.
        """
        set_up_process()
        if isinstance(workdir, list | tuple):
            if not workdir:
                raise UserError("no workdir is given; want at least one")
            return cls.ensemble([cls.load(w, checkpoint, dtype) for w in workdir])
        workdir = Workdir.open(workdir)
        config, vocabulary = workdir.config_and_vocabulary()
        if dtype:
            config = fields.changed(config, "model", dtype=dtype)
        model = build(config.model, len(vocabulary))
        steps, parameters = processes.arrays_from_first(
            "the parameters",
            lambda: average_checkpoints(
                choose_checkpoints(workdir, config, checkpoint), model.shapes
            ),
            model.shapes,
        )
        return cls(config, vocabulary, model, parameters, steps)

    @classmethod
    def ensemble(cls, translators: Sequence["Translator"]) -> "Translator":
        """Several translators as one, on the devices of the first.

        What the first's config says of decoding counts.

        Raises:
          UserError: they have not the same vocabulary.
        """
        if not translators:
            raise UserError("an ensemble of no translators; want at least one")
        first, *others = translators
        for other in others:
            if other.vocabulary.model != first.vocabulary.model:
                raise UserError(
                    f"{other.vocabulary.name} is not {first.vocabulary.name}; the "
                    "members of an ensemble share one vocabulary: train them with one "
                    "--config.data.tokenizer"
                )
        whole = cls.__new__(cls)
        whole.vocabulary = first.vocabulary
        devices = [*first.members[0].mesh.devices.flat]
        whole.members = tuple(
            m._replace(parameters=replicated(m.parameters, devices))
            for translator in translators
            for m in translator.members
        )
        return whole

    @property
    def config(self) -> Config:
        return self.members[0].config

    @property
    def model(self) -> Model:
        return self.members[0].model

    @property
    def parameters(self) -> Parameters:
        return self.members[0].parameters

    @property
    def steps(self) -> tuple[int, ...]:
        return self.members[0].steps

    def __repr__(self) -> str:
        data = self.config.data
        members = "; ".join(
            f"{member.model.count():,} parameters of steps "
            + ", ".join(f"{step:,}" for step in member.steps)
            for member in self.members
        )
        way = f"{data.source} -> {data.target}"
        return f"Translator({way}, {self.vocabulary!r}, {members})"

    def with_options(self, **decode) -> "Translator":
        """The same models with other values of `config.decode`, such as `beam=10`.

        Raises:
          UserError: no such field, or no such value.
        """
        other = copy.copy(self)
        other.members = tuple(
            member._replace(config=fields.changed(member.config, "decode", **decode))
            for member in self.members
        )
        return other

    def made_from(self) -> dict:
        """What translations depend on, but for lines and options that are given."""
        return {
            "checkpoints": [[*member.steps] for member in self.members],
            "parameters_sha256": [m.parameters_sha256() for m in self.members],
            "dtype": [compute_dtype(m.config.model).name for m in self.members],
            "decode": self.decode_options(),
        }

    def decode_options(self) -> dict:
        """The fields of `config.decode` that change translations."""
        names = "beam", "alpha", "penalty", "stop", "extra_length", "max_source"
        return {name: getattr(self.config.decode, name) for name in names}

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        nbest: int = 1,
        alpha: float | None = None,
        penalty: str | None = None,
        stop: str | None = None,
        prefix: str | Sequence[str | None] | None = None,
        must: str | Sequence = (),
        must_not: str | Sequence = (),
        batch_size: int | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[Translation]:
        """The best translations of each line, in order, by beam search (section 6.1).

        A line without a visible character is translated by an empty line, whatever is
        wished of it.

        Args:
          lines: text, one sentence each.
          beam: width of the search; `config.decode.beam` where not given.
          nbest: hypotheses of each line, at most `beam`.
          alpha, penalty: exponent and name of the length penalty: `gnmt`, ((5 + length)
            / 6)^alpha; `length`, length^alpha; or `none`. The config's if not given.
          stop: `best` searches while a better hypothesis could be found, `first` until
            there are `nbest`; the config's where not given.
          prefix: what translations begin with: one text, or one for each line.
          must, must_not: words, or phrases, that they hold or do not hold, as whole
            words; a list for all lines, or a list of lists, one for each.
          batch_size: how many lines are sorted by length and searched together; all
            where not given. The result does not depend on it.
          first_line: the number of the first line, in warnings.
          warn: log (to `t2t_jax`) one warning about lines that are cut because they are
            too long, and one about translations that reached their longest length.

        Raises:
          UserError: an option is out of its range, or wishes contradict each other.
        """
        decode = self.config.decode
        algorithm = BeamSearch(
            beam=decode.beam if beam is None else beam,
            nbest=nbest,
            stop=decode.stop if stop is None else stop,
            **self._penalty(alpha, penalty),
            **self._special_tokens(),
        )
        _check_search(algorithm)
        search = self._search(algorithm)
        wanted = prefix, must, must_not
        return self._decode(search, lines, wanted, batch_size, first_line, warn)

    def sample(
        self,
        lines: Sequence[str],
        *,
        samples: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        alpha: float | None = None,
        penalty: str | None = None,
        prefix: str | Sequence[str | None] | None = None,
        must_not: str | Sequence = (),
        batch_size: int | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[Translation]:
        """Draws `samples` translations of each line at random.

        What is drawn depends on the line, the seed and the sample's number alone: equal
        lines give equal samples, and those of a line are not its neighbours'.

        Args:
          temperature, top_k, top_p: as `search/sampling.py: sample` takes them.
          others: as `translate` takes them.

        Raises:
          UserError: an option is out of its range.
        """
        if samples < 1:
            raise UserError(f"samples={samples}; want at least 1")
        if not 0 <= seed < 1 << 32:
            raise UserError(f"seed={seed}; want 0 <= seed < 2^32")
        try:
            check_sampling(temperature, top_k, top_p)
        except ValueError as e:
            raise UserError(str(e)) from None
        algorithm = Sampling(
            samples=samples,
            temperature=float(temperature),
            top_k=top_k,
            top_p=float(top_p),
            **self._penalty(alpha, penalty),
            **self._special_tokens(),
        )
        search = self._search(algorithm, seed)
        wanted = prefix, (), must_not
        return self._decode(search, lines, wanted, batch_size, first_line, warn)

    def score(
        self,
        pairs: Sequence[tuple],
        *,
        alpha: float | None = None,
        penalty: str | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[Score]:
        """How probable each target is, given its source.

        A hypothesis of a search has the log-probability here that it had there, up to
        the rounding of a sum in another order.

        Args:
          pairs: (source, target) each; a target is a text, or a `Hypothesis` or
            `Translation`, whose own pieces are scored.
          alpha, penalty, first_line, warn: as for `translate`.
        """
        pairs = self._reader(first_line, warn).pairs(pairs)
        penalties = self._penalty(alpha, penalty)
        return scoring.score(self.vocabulary, self.members, pairs, **penalties)

    def attention(self, source: str, target=None) -> AttentionMaps:
        """All attention weights of a pair, for pictures; section 3.2.

        Args:
          target: a text, `Hypothesis` or `Translation`; the best translation of the
            source if None.

        Raises:
          UserError: this is an ensemble; its members have attention, one by one.
        """
        if len(self.members) > 1:
            raise UserError(
                "attention is of one model, this is an ensemble of "
                f"{len(self.members)}; load one workdir"
            )
        target = self.translate([source])[0] if target is None else target
        pairs = self._reader(1, warn=True).pairs([(source, target)])
        return next(scoring.attention(self.vocabulary, self.members[0], pairs))

    def align(
        self,
        pairs: Sequence[tuple],
        *,
        layer: int | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[Alignment]:
        """Which source word each target word looks at most.

        From the decoder's attention to the source in one layer, the mean of its heads
        (and of the members of an ensemble).

        Args:
          pairs: as for `score`.
          layer: from 0; `teaching.alignment_layer` of each model if None.
        """
        pairs = self._reader(first_line, warn).pairs(pairs)
        return scoring.align(self.vocabulary, self.members, pairs, layer)

    @cached_property
    def _phrases(self) -> Phrases:
        return Phrases(self.vocabulary)

    def _search(self, algorithm: Algorithm, seed: int = 0) -> Search:
        """The programs of an algorithm for these models."""
        return Search(
            parameters=tuple(member.parameters for member in self.members),
            definitions=tuple(member.model.definition for member in self.members),
            mesh=self.members[0].mesh,
            algorithm=algorithm,
            seed=seed,
        )

    def _special_tokens(self) -> dict[str, int]:
        vocabulary = self.vocabulary
        return {"bos": vocabulary.bos, "eos": vocabulary.eos, "pad": vocabulary.pad}

    def _penalty(self, alpha: float | None, penalty: str | None) -> dict:
        decode = self.config.decode
        alpha = decode.alpha if alpha is None else float(alpha)
        penalty = decode.penalty if penalty is None else penalty
        if penalty not in PENALTIES:
            raise UserError(f"penalty={penalty!r}{did_you_mean(penalty, PENALTIES)}")
        if not 0 <= alpha < float("inf"):
            raise UserError(f"alpha={alpha}; want at least 0 (0 is no length penalty)")
        return {"alpha": alpha, "penalty": penalty}

    def _decode(
        self,
        search: Search,
        lines: Sequence[str],
        wanted: tuple,
        batch_size: int | None,
        first_line: int,
        warn: bool,
    ) -> list[Translation]:
        """Decodes the lines, `batch_size` at a time.

        Args:
          wanted: `prefix`, `must` and `must_not` of `translate`.
        """
        check_lines(lines)
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size={batch_size}; want at least 1 line")
        decode, reader = self.config.decode, self._reader(first_line, warn)
        constraints = constraints_for(
            len(lines), self.vocabulary, self._phrases, *wanted, first_line
        )
        sources = reader.sources(lines)
        for number, pair in enumerate(
            zip(sources, constraints, strict=True), first_line
        ):
            check_room(*pair, number, decode)
        found: list[tuple[Hypothesis, ...]] = []
        for start in range(0, len(lines), batch_size or max(1, len(lines))):
            part = slice(start, start + (batch_size or len(lines)))
            found += decode_batch(
                search,
                sources[part],
                constraints[part],
                self.vocabulary,
                self._phrases,
                decode,
            )
        _warn_if_unended(reader, sources, found, decode)
        return [
            Translation(line, hypotheses, source.cut)
            for line, hypotheses, source in zip(lines, found, sources, strict=True)
        ]

    def _reader(self, first_line: int, warn: bool) -> InputReader:
        return InputReader(self.vocabulary, self.members, first_line, warn)


def _warn_if_unended(
    reader: InputReader,
    sources: Sequence[Source],
    found: Sequence[tuple[Hypothesis, ...]],
    decode: DecodeConfig,
) -> None:
    """Warns of lines without a translation, and of translations at their limit."""
    best = [hypotheses[0] for hypotheses in found]
    without = [row for row, each in enumerate(best) if each == NOTHING]
    reader.warn(
        without,
        len(best),
        ": no translation meets its constraints",
        "lines have no translation that meets their constraints",
    )
    unended = [
        row for row, each in enumerate(best) if not each.ended and each != NOTHING
    ]
    room = longest_output(len(sources[unended[0]].ids), decode) if unended else 0
    reader.warn(
        unended,
        len(best),
        f": its translation did not end within {room} pieces",
        "translations reached their longest length",
    )


def _check_search(search: BeamSearch) -> None:
    beam, nbest, stop = search.beam, search.nbest, search.stop
    if beam < 1:
        raise UserError(f"beam={beam}; want at least 1 (1 is greedy search)")
    if not 1 <= nbest <= beam:
        raise UserError(
            f"nbest={nbest} with beam={beam}; want 1 <= nbest <= beam: beam="
            f"{max(nbest, 1)} or more finds that many"
        )
    if stop not in STOPS:
        raise UserError(f"stop={stop!r}{did_you_mean(stop, STOPS)}")
