"""`Translator`: translates, samples, scores and aligns lines of text.

The commands and notebooks use it. A line's translation does not depend on the lines
translated with it, nor on the number of devices: the shape of the arrays depends on the
length of the line alone (`decoding/batches.py`, `decoding/batches.py`).

Shape suffixes: b batch rows, s source, n hypotheses, t target.
"""

import copy
from collections.abc import Sequence
from functools import cached_property

import jax
from etils import epath

from t2t_jax import config as fields
from t2t_jax.config import Config, DecodeConfig, TaskConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import alignment, choosing, predictions, scoring
from t2t_jax.decoding.batch_decoding import NOTHING, check_room, decode_batch
from t2t_jax.decoding.batches import longest_output, replicate
from t2t_jax.decoding.choice import Choice
from t2t_jax.decoding.constraints import Constraints, Phrases, constraints_for
from t2t_jax.decoding.inputs import InputReader, Member, Source, check_lines
from t2t_jax.decoding.predictions import Filled, check_classifies, classify
from t2t_jax.decoding.programs import Search
from t2t_jax.decoding.results import (
    Alignment,
    AttentionMaps,
    Hypothesis,
    Prediction,
    Score,
    Translation,
)
from t2t_jax.decoding.search_options import (
    beam_search_algorithm,
    penalty_options,
    sampling_algorithm,
)
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import Parameters, compute_dtype
from t2t_jax.model.model import Model, build
from t2t_jax.parallel import processes
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.search.algorithm import Algorithm
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.workdir import Workdir


class Translator:
    """A trained model, or an ensemble of several, that translates lines of text.

    Attributes:
      vocabulary: of the target, with that of the source; shared by all members.
      tag: a symbol that is put before each line; "" for a model of one task.
      members: the models. `config`, `model`, `parameters` and `steps` are those of the
        first.

    Args:
      devices: the devices to compute on; all devices of this process if None. Results
        do not depend on their number.
    """

    tag: str = ""
    # The last choice that was made, with the fields of the config that it follows.
    _made: tuple | None = None

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        parameters: Parameters,
        steps: Sequence[int] = (),
        devices: Sequence[jax.Device] | None = None,
    ):
        parameters = replicate(parameters, devices)
        self.members = (Member(config, model, parameters, tuple(steps)),)
        self.vocabulary = vocabulary

    @classmethod
    def load(
        cls,
        workdir: Workdir | epath.PathLike | Sequence[epath.PathLike],
        checkpoint: str | int | None = None,
        dtype: str | None = None,
    ) -> "Translator":
        """Loads a workdir for translation; executes no code from it.

        Args:
          workdir: a folder, or gs://BUCKET/FOLDER. A list of them is an ensemble, which
            predicts with the mean of the members' probabilities.
          checkpoint: `average` (of the last `config.decode.average` checkpoints,
            section 6.1), `average:N` (of the last N), `last`, `best` (highest dev BLEU
            of all evaluations), `best:N` (the average of the N best), a step, or steps
            to average such as `"1000,2000"`; `config.decode.checkpoint` if None.
            Damaged checkpoints are reported by name. The next intact ones replace them,
            unless steps or a number N are given.
          dtype: of activations, `float32` or `bfloat16`; as in training if None.

        Raises:
          UserError: not a workdir; no such checkpoint; too few intact ones; or members
            whose vocabularies differ.
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
        model = build(config.model, *vocabulary.sizes)
        # Only process 0 reads the checkpoints; the others receive its parameters.
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
        """Joins translators into one, on the devices of the first.

        The first one's `config.decode` applies to all.

        Raises:
          UserError: no translators, or their vocabularies or tasks differ.
        """
        if not translators:
            raise UserError("the ensemble is empty; want at least one translator")
        first, *others = translators
        for other in others:
            if other.config.task.kind != first.config.task.kind:
                raise UserError(
                    f"config.task.kind={first.config.task.kind!r} and "
                    f"{other.config.task.kind!r}; the members of an ensemble must be "
                    "trained for one task"
                )
        ours = first.vocabulary
        for theirs in (other.vocabulary for other in others):
            for one, two, field in (
                (theirs, ours, "tokenizer"),
                (theirs.source, ours.source, "source_tokenizer"),
            ):
                if one.model != two.model:
                    raise UserError(
                        f"the vocabularies {one.name} and {two.name} differ; the "
                        "members of an ensemble must share one vocabulary: train them "
                        f"with the same --config.data.{field}"
                    )
        joint = cls.__new__(cls)  # `__init__` would build a translator of one member
        joint.vocabulary = first.vocabulary
        devices = [*first.members[0].mesh.devices.flat]
        joint.members = tuple(
            m._replace(parameters=replicate(m.parameters, devices))
            for translator in translators
            for m in translator.members
        )
        return joint

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
        members = "; ".join(
            f"{member.model.count():,} parameters of steps "
            + ", ".join(f"{step:,}" for step in member.steps)
            for member in self.members
        )
        return f"Translator({self.what}, {self.vocabulary!r}, {members})"

    @property
    def what(self) -> str:
        """What it does, for people: en -> de; or a tag, or the name of its task."""
        data, kind = self.config.data, self.config.task.kind
        translates = kind == TaskConfig().kind
        return self.tag or (f"{data.source} -> {data.target}" if translates else kind)

    def with_options(self, **decode) -> "Translator":
        """Returns the same models with other values of `config.decode`: `beam=10`.

        Raises:
          UserError: a field does not exist, or a value is out of its range.
        """
        other = copy.copy(self)
        other.members = tuple(
            member._replace(config=fields.changed(member.config, "decode", **decode))
            for member in self.members
        )
        return other

    def with_choice(self, choose: str, **options) -> "Translator":
        """Returns the same models, which choose among hypotheses in another way.

        It changes what `translate` returns; `explain` and `translate_ids` show the
        search alone. Models that the choice needs are loaded now.

        Args:
          choose: an entry of `CHOICES` (`decoding/choosing.py`): `probability`, `mbr`
            or `rerank`; as in --choose, options may follow: "mbr:samples=64".
          options: of the choice, such as `samples=64` or `reverse="runs/de-en"`.

        Raises:
          UserError: no such choice, a wrong option, or a workdir of another kind.
        """
        other = self.with_options(**choosing.choice_fields(choose, options))
        _ = other.choice  # mistakes are reported now, not at the first line
        return other

    @property
    def choice(self) -> Choice:
        """The choice of `config.decode`; made, with its models, at its first use."""
        fields_of_choice = self.config.decode.choose, self.config.decode.options
        if self._made is None or self._made[0] != fields_of_choice:
            self._made = fields_of_choice, choosing.choice_of(self.config)
        return self._made[1]

    def tagged(self, tag: str) -> "Translator":
        """Returns the same models, which read a tag such as `<2de>` before each line.

        It chooses the subtask of a text-to-text model. Lines without a visible
        character get none; their translation is empty.
        """
        other = copy.copy(self)
        other.tag = tag
        return other

    def provenance(self) -> dict:
        """Provenance: everything translations depend on, except lines and arguments."""
        return {
            "checkpoints": [[*member.steps] for member in self.members],
            "parameters_sha256": [m.parameters_sha256() for m in self.members],
            "dtype": [compute_dtype(m.config.model).name for m in self.members],
            "decode": self.decode_options(),
            **({"tag": self.tag} if self.tag else {}),
        }

    def decode_options(self) -> dict:
        """The fields of `config.decode` that change translations."""
        names = ["beam", "alpha", "penalty", "stop", "extra_length", "max_source"]
        if self.config.decode.groups > 1:  # else they change nothing
            names += ["groups", "diversity"]
        search = {name: getattr(self.config.decode, name) for name in names}
        return search | choosing.described(self.choice, self.config)

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        groups: int | None = None,
        diversity: float | None = None,
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
        """Translates each line by beam search (section 6.1); results are in order.

        With another `config.decode.choose` than `probability`, that choice is made
        among the candidates it asks for (`with_choice`).

        The translation of a line without a visible character is empty, even if it has
        constraints. A model without a source (a language model) goes on from each line,
        and writes a text of its own for an empty one; the result begins with the line.

        Args:
          lines: text, one sentence each.
          beam: hypotheses kept at each step; `config.decode.beam` if None.
          groups, diversity: with more than one group, a diverse beam search
            (`search/diverse.py`): groups of `beam / groups` hypotheses avoid the tokens
            of earlier groups, each use of which costs `diversity` nats. Scores are
            those without this cost. Those of the config if None.
          nbest: hypotheses to return for each line, at most `beam`.
          alpha, penalty: exponent and name of the length penalty: `gnmt`, ((5 + length)
            / 6)^alpha; `length`, length^alpha; or `none`. Those of the config if None.
          stop: `best` searches while a better hypothesis is possible, `first` stops at
            `nbest` finished ones; that of the config if None.
          prefix: the text that translations begin with; one for all lines, or a list
            with one for each line.
          must, must_not: phrases that translations contain or do not contain, as whole
            words; one phrase, a list for all lines, or a list with one entry (a phrase
            or a list) for each line.
          batch_size: lines that are sorted by length and searched together; all if
            None. Results do not depend on it.
          first_line: the number of the first line in warnings and errors.
          warn: log one warning about lines that are cut because they are too long, and
            one about translations that reached their length limit, to `t2t_jax`.

        Raises:
          UserError: an option is out of its range, or constraints contradict each
            other.
        """
        if self.config.decode.choose != choosing.PLAIN:
            search = {
                **{"beam": beam, "groups": groups, "diversity": diversity},
                **{"stop": stop, "alpha": alpha, "penalty": penalty},
                **{"prefix": prefix, "must": must, "must_not": must_not},
                **{"batch_size": batch_size, "first_line": first_line, "warn": warn},
            }
            plain = self.with_choice(choosing.PLAIN)
            return choosing.choose(self.choice, plain, lines, nbest, search)
        search = self.beam_search(
            beam, nbest, stop, alpha, penalty, groups=groups, diversity=diversity
        )
        wanted = prefix, must, must_not
        return self._decode(search, lines, wanted, batch_size, first_line, warn)

    def translate_ids(
        self, sources: Sequence[Sequence[int]], *, beam: int | None = None
    ) -> list[Hypothesis]:
        """Translates encoded lines; returns the best hypothesis of each.

        Args:
          sources: token ids with EOS; none may be empty.
          beam: hypotheses kept at each step, in one group; the beam and the groups of
            `config.decode` if None.
        """
        start = Constraints(tuple(self.vocabulary.encode([""])[0]))
        found = decode_batch(
            self.beam_search(beam, groups=None if beam is None else 1),
            [Source([*ids], 0) for ids in sources],
            [start] * len(sources),
            self.vocabulary,
            self.phrases,
            self.config.decode,
        )
        return [hypotheses[0] for hypotheses in found]

    def sample(
        self,
        lines: Sequence[str],
        *,
        samples: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        epsilon: float = 0.0,
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

        A sample depends only on the line, the seed and the number of the sample: equal
        lines give equal samples, different lines independent ones. For a model without
        a source it also depends on the number of the line (`first_line` and on), so
        that equal lines go on differently.

        Args:
          samples: translations to draw for each line.
          temperature, top_k, top_p, epsilon: as for `search/sampling.py: sample`.
          seed: of the random numbers, 0 <= seed < 2^32.
          others: as for `translate`.

        Raises:
          UserError: an option is out of its range.
        """
        if not 0 <= seed < 1 << 32:
            raise UserError(f"seed={seed}; want 0 <= seed < 2^32")
        algorithm = sampling_algorithm(
            self.config.decode,
            self.vocabulary,
            samples=samples,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            epsilon=epsilon,
            alpha=alpha,
            penalty=penalty,
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
        """Computes the log-probability of each target given its source.

        A hypothesis gets the same log-probability as in the search that found it, up to
        rounding: the sum runs in another order.

        Args:
          pairs: (source, target). A target is a text, which is encoded anew, or a
            `Hypothesis` or `Translation`, whose own pieces are scored.
          alpha, penalty, first_line, warn: as for `translate`.

        Raises:
          UserError: the model predicts pieces in their places, of which the other
            pieces are given: they have no probability together.
        """
        if self.model.predicts == "source":
            raise UserError(
                f"config.model.kind={self.config.model.kind!r} gives no probability of "
                "a whole line, only of hidden pieces; `evaluate` has their perplexity, "
                "and a language model scores lines"
            )
        pairs = self.reader(first_line, warn).pairs(pairs)
        penalties = penalty_options(self.config.decode, alpha, penalty)
        return scoring.score(self.vocabulary, self.members, pairs, **penalties)

    def confidence(
        self,
        pairs: Sequence[tuple],
        measure: str = "log_prob",
        *,
        passes: int = 10,
        seed: int = 0,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[float]:
        """Computes how sure the model is of translations; higher is more sure.

        A line without a visible character has confidence 0, the highest; one for which
        no translation meets the constraints has minus infinity.

        Args:
          pairs: as for `score`.
          measure: an entry of `CONFIDENCES` (`decoding/scoring.py`): `log_prob`,
            `entropy`, `dropout_mean` or `dropout_variance`.
          passes, seed: of the measures with dropout.
          first_line, warn: as for `translate`.

        Raises:
          UserError: no such measure, the model has no dropout, or it gives no
            probability of a target given a source.
        """
        options = scoring.ConfidenceOptions(passes, seed)
        scoring.check_confidence(measure, options, f"measure={measure!r}")
        scoring.check_dropout(measure, self.members)
        if self.model.predicts != "target" or not self.model.has_source:
            raise UserError(
                f"config.model.kind={self.config.model.kind!r} does not translate, so "
                "there is no confidence in a translation"
            )
        empty = {row: of for row, (_, of) in enumerate(pairs) if _is_empty(of)}
        rows = [row for row in range(len(pairs)) if row not in empty]
        encoded = self.reader(first_line, warn).pairs([pairs[row] for row in rows])
        scorer = scoring.Scorer(self.vocabulary, self.members, options)
        found = scoring.CONFIDENCES[measure](scorer, encoded)
        # Nothing to be unsure of, or nothing found.
        values = {row: min(0.0, of.score) for row, of in empty.items()}
        values |= zip(rows, found, strict=True)
        return [values[row] for row in range(len(pairs))]

    def classify(
        self, lines: Sequence[str], *, first_line: int = 1, warn: bool = True
    ) -> list[Prediction]:
        """Computes the label of each line, and the probabilities of all labels.

        Args:
          lines: text, one sentence each.
          first_line, warn: as for `translate`.

        Raises:
          UserError: the model does not predict labels.
        """
        check_classifies(self.members)
        sources = self.reader(first_line, warn).sources(lines)
        return classify(self.vocabulary, self.members, sources)

    def fill(
        self, lines: Sequence[str], *, first_line: int = 1, warn: bool = True
    ) -> list[Filled]:
        """Fills each `<mask>` of lines, with a masked language model.

        Args:
          first_line, warn: as for `translate`.

        Raises:
          UserError: the model is not a masked language model.
        """
        reader = self.reader(first_line, warn)
        return predictions.fill(self.vocabulary, self.members, lines, reader)

    def attention(self, source: str, target=None) -> AttentionMaps:
        """Returns all attention weights of a pair (section 3.2), for plots.

        Args:
          target: a text, `Hypothesis` or `Translation`; the best translation of the
            source if None.

        Raises:
          UserError: this translator is an ensemble, or its model has no attention.
        """
        if len(self.members) > 1:
            raise UserError(
                "attention maps exist for a single model, and this translator is an "
                f"ensemble of {len(self.members)}; load one workdir"
            )
        alignment.checked_cross_layers(self.members[0])
        target = self.translate([source])[0] if target is None else target
        pairs = self.reader(1, warn=True).pairs([(source, target)])
        return next(alignment.attention(self.vocabulary, self.members[0], pairs))

    def align(
        self,
        pairs: Sequence[tuple],
        *,
        layer: int | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[Alignment]:
        """Links each target word to the source word with the most attention.

        Uses the decoder's attention to the source in one layer, averaged over its heads
        and over the members of an ensemble.

        Args:
          pairs: as for `score`.
          layer: decoder layer, from 0; that of `alignment_layer` if None.
          first_line, warn: as for `translate`.
        """
        for member in self.members:  # before a text of another task is encoded
            alignment.checked_cross_layers(member)
        pairs = self.reader(first_line, warn).pairs(pairs)
        found = alignment.align(self.vocabulary, self.members, pairs, layer)
        return [each.without_first() for each in found] if self.tag else found

    @cached_property
    def phrases(self) -> Phrases:
        """Phrases of constraints, as automata over this vocabulary."""
        return Phrases(self.vocabulary)

    def beam_search(
        self,
        beam: int | None,
        nbest: int = 1,
        stop: str | None = None,
        alpha: float | None = None,
        penalty: str | None = None,
        groups: int | None = None,
        diversity: float | None = None,
    ) -> Search:
        """A beam search with these models; None takes the config's value."""
        return self._search(
            beam_search_algorithm(
                self.config.decode,
                self.vocabulary,
                beam=beam,
                nbest=nbest,
                stop=stop,
                alpha=alpha,
                penalty=penalty,
                groups=groups,
                diversity=diversity,
            )
        )

    def _search(self, algorithm: Algorithm, seed: int = 0) -> Search:
        """The search of an algorithm with these models.

        Raises:
          UserError: one of them generates no text.
        """
        for member in self.members:
            if not member.model.generates:
                raise UserError(
                    f"config.model.kind={member.config.model.kind!r} generates no text "
                    "to search for; choose a kind that does, or ask for what its task "
                    "predicts"
                )
        return Search(
            parameters=tuple(member.parameters for member in self.members),
            definitions=tuple(member.model.definition for member in self.members),
            mesh=self.members[0].mesh,
            algorithm=algorithm,
            seed=seed,
        )

    def _decode(
        self,
        search: Search,
        lines: Sequence[str],
        wanted: tuple,
        batch_size: int | None,
        first_line: int,
        warn: bool,
    ) -> list[Translation]:
        """Searches for the lines, `batch_size` at a time.

        Args:
          wanted: `prefix`, `must` and `must_not` of `translate`.
        """
        check_lines(lines)
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size={batch_size}; want at least 1 line")
        decode, reader = self.config.decode, self.reader(first_line, warn)
        if not self.model.has_source:
            wanted = self.begun_by(lines, *wanted)
        constraints = constraints_for(
            len(lines), self.vocabulary, self.phrases, *wanted, first_line
        )
        encode = reader.sources if self.model.has_source else reader.prompts
        sources = encode(lines)
        for number, pair in enumerate(
            zip(sources, constraints, strict=True), first_line
        ):
            check_room(*pair, number, decode)
        nbest_lists: list[tuple[Hypothesis, ...]] = []
        # `range` refuses a step of 0, so an empty list counts as a batch of one line.
        for start in range(0, len(lines), batch_size or max(1, len(lines))):
            part = slice(start, start + (batch_size or len(lines)))
            nbest_lists += decode_batch(
                search,
                sources[part],
                constraints[part],
                self.vocabulary,
                self.phrases,
                decode,
            )
        _warn_if_unended(reader, sources, nbest_lists, decode)
        return [
            Translation(line, nbest, source.cut)
            for line, nbest, source in zip(lines, nbest_lists, sources, strict=True)
        ]

    def begun_by(self, lines: Sequence[str], prefix, must, must_not) -> tuple:
        """Returns constraints with the lines as prefixes, for a model without a source.

        Raises:
          UserError: there is another prefix.
        """
        if prefix:
            raise UserError(
                f"prefix={prefix!r}: config.model.kind={self.config.model.kind!r} has "
                "no source, and goes on from the line itself; write the beginning of "
                "the text into the line, and leave out the prefix"
            )
        return list(lines), must, must_not

    def reader(self, first_line: int, warn: bool) -> InputReader:
        """Reads lines and pairs as token ids; warns of those that are cut."""
        return InputReader(self.vocabulary, self.members, first_line, warn, self.tag)


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
        f": its output did not end within {room} pieces",
        "outputs reached their longest length",
    )


def _is_empty(target: str | Hypothesis | Translation) -> bool:
    """True for what a search returns for a line without pieces or without result."""
    best = target.best if isinstance(target, Translation) else target
    return isinstance(best, Hypothesis) and not best.tokens and not best.text
