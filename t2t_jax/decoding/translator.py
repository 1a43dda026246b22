"""`Translator`: translates, scores and aligns lines of text.

The commands and notebooks use it. It searches and scores as `Searcher` does, and
chooses among what a search finds as `config.decode.choose` says
(`decoding/choosing.py`).
"""

import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from t2t_jax.config import SearchOptions
from t2t_jax.decoding import alignment, scoring
from t2t_jax.decoding.choosing import Choice, parse_choice
from t2t_jax.decoding.constraints import Constraints
from t2t_jax.decoding.inputs import Source, check_ids
from t2t_jax.decoding.results import (
    Alignment,
    AttentionMaps,
    Hypothesis,
    Prediction,
    Translation,
)
from t2t_jax.decoding.search_options import (
    PreservingOptions,
    SearchRequest,
    option_names,
    takes,
)
from t2t_jax.decoding.searcher import Searcher
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.sections import at_address, checked_options
from t2t_jax.text.units import Aligned

if TYPE_CHECKING:  # most lines are translated without it
    from t2t_jax.extensions.decoding.predictions import Filled
    from t2t_jax.extensions.decoding.preserving import ModelSupport, Report


class Translator(Searcher):
    """A trained model, or an ensemble of several, that translates lines of text.

    `Translator.load` makes one of a workdir; the class itself makes one of parameters
    of your own.

    Attributes:
      config: frozen, a `Config`; of the first model, as are the next three.
      model: a `Model`: the definition without values.
      parameters: a nested dict of float32 arrays, on the devices; see `to_numpy`.
      steps: those of the checkpoints that were averaged; empty for your own parameters.
      vocabulary: of the target, with that of the source; shared by all members.
      members: the models of an ensemble, each with these attributes but the last.
      tag: a symbol that is put before each line; "" for a model of one task.
      engine: the library that computes.

    Args:
      devices: the devices to compute on; all devices of this process if None. Results
        do not depend on their number.
    """

    # The last choice, after the entry and options that it is of.
    _cached_choice: tuple | None = None

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
        name, written = parse_choice(choose)
        translator = self.with_options(choose=name, options=written | options)
        _ = translator.choice  # mistakes are reported now, not at the first line
        return translator

    def with_adapter(
        self, workdir: str | PathLike, checkpoint: str | int | None = None
    ) -> "Translator":
        """Returns this model with an adapter that was trained on it; shares its arrays.

        `Translator.load(workdir)` merges both: as quick as the model, and as large.

        Args:
          workdir: of a run with `config.train.adapter`.
          checkpoint: of the adapter, as for `load`.

        Raises:
          UserError: no adapter, one of other parameters, or an ensemble, int8 weights
            or another engine.
        """
        attach = at_address("extensions.decoding.adapted.attach")
        return attach(self, workdir, checkpoint)

    @property
    def choice(self) -> Choice:
        """The choice of `config.decode`; its models are loaded at the first use."""
        decode = self.config.decode
        key = decode.variant("choose"), decode.options
        if self._cached_choice is None or self._cached_choice[0] != key:
            self._cached_choice = key, key[0](self.config)
        return self._cached_choice[1]

    def decode_options(self) -> dict:
        """The fields of `config.decode` that change translations, and the choice."""
        return super().decode_options() | self.choice.recorded()

    @takes(SearchOptions, PreservingOptions)
    def translate(
        self,
        lines: Sequence[str],
        *,
        nbest: int = 1,
        prefix: str | Sequence[str | None] | None = None,
        must: str | Sequence = (),
        must_not: str | Sequence = (),
        batch_size: int | None = None,
        first_line: int = 1,
        warn: bool = True,
        report: "Report | None" = None,
        **options: Any,
    ) -> list[Translation]:
        """Translates each line by beam search (section 6.1); results are in order.

        With another `config.decode.choose` than `probability`, that choice is made
        among the candidates it asks for (`with_choice`).

        The translation of a line without a visible character is empty, even if it has
        constraints. A model without a source (a language model) goes on from each line,
        and writes a text of its own for an empty one; the result begins with the line.

        Args:
          lines: text, one sentence each.
          nbest: hypotheses to return for each line, at most the beam. Their texts
            differ; there may be fewer.
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
          report: counts what happened to markup, placeholders and terms.
          options: fields of `SearchOptions` (config.py), such as `beam=8` and
            `alpha=1.0`; those of the config by default. With `groups` above 1, a
            diverse beam search (`search/beam.py`); its scores are those without the
            cost of `diversity`. And those of `PreservingOptions`
            (`decoding/search_options.py`), such as `markup="html"`; an entry of `lines`
            may then be a text of several lines.

        Raises:
          UserError: an option is out of its range, or constraints contradict each
            other.
        """
        names = {*option_names(PreservingOptions)} & options.keys()
        preserved = {name: options.pop(name) for name in names}
        choice = self.choice  # cached: copies share it
        translator = self.with_extra_length(options.pop("extra_length", None))
        request = SearchRequest(
            nbest=nbest,
            search={name: x for name, x in options.items() if x is not None},
            prefix=prefix,
            must=must,
            must_not=must_not,
            batch_size=batch_size,
            first_line=first_line,
            warn=warn,
        )
        if all(option in (None, "", False) for option in preserved.values()):
            return choice.translate(translator, lines, request)
        preserving = at_address("extensions.decoding.preserving.translate")
        return preserving(translator, lines, request, preserved, report)

    @property
    def preserving_support(self) -> "ModelSupport":
        """What the model can take of what is to be preserved."""
        return at_address("extensions.decoding.preserving.support_of")(self)

    def translate_ids(
        self, sources: Sequence[Sequence[int]], *, beam: int | None = None
    ) -> list[Hypothesis]:
        """Translates encoded lines; returns the best hypothesis of each.

        Args:
          sources: token ids with EOS; none may be empty. Raises UserError for ids that
            the vocabulary does not have.
          beam: hypotheses kept at each step, in one group; the beam and the groups of
            `config.decode` if None.
        """
        check_ids(sources, self.vocabulary.source)
        start = Constraints(tuple(self.vocabulary.encode([""])[0]))
        search = self.beam_search(beam=beam, groups=None if beam is None else 1)
        rows = [Source([*ids], 0) for ids in sources]
        results = self.decode(search, rows, [start] * len(rows))
        return [hypotheses[0] for hypotheses in results]

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
        if measure not in scoring.CONFIDENCES:
            raise UserError(
                f"measure={measure!r}{did_you_mean(measure, scoring.CONFIDENCES)}"
            )
        options = {"passes": passes, "seed": seed}
        options = scoring.ConfidenceOptions(
            **checked_options(scoring.ConfidenceOptions, options)
        )
        if self.model.predicts != "target" or not self.model.has_source:
            raise UserError(
                f"config.model.kind={self.config.model.kind!r} does not translate, so "
                "there is no confidence in a translation"
            )
        rows = [row for row, (_, target) in enumerate(pairs) if not _is_empty(target)]
        encoded = self.reader(first_line, warn).pairs([pairs[row] for row in rows])
        confidences = self.confidences(measure, options, encoded)
        values = dict(zip(rows, confidences, strict=True))
        for row, (_, target) in enumerate(pairs):
            if row not in values:  # nothing to be unsure of, or no result
                values[row] = 0.0 if target.ended else -math.inf
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
        sources = self.reader(first_line, warn).sources(lines)
        classify = at_address("extensions.decoding.predictions.classify")
        return classify(self.vocabulary, self.members, sources)

    def fill(
        self, lines: Sequence[str], *, first_line: int = 1, warn: bool = True
    ) -> "list[Filled]":
        """Fills each `<mask>` of lines, with a masked language model.

        Args:
          first_line, warn: as for `translate`.

        Raises:
          UserError: the model is not a masked language model.
        """
        reader = self.reader(first_line, warn)
        fill = at_address("extensions.decoding.predictions.fill")
        return fill(self.vocabulary, self.members, lines, reader)

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
        self.check_attention()  # before a text of another task is encoded
        encoded = self.reader(first_line, warn).pairs(pairs)
        texts = [(str(source), str(target)) for source, target in pairs]
        weights = self.alignment_weights(encoded, layer)
        return alignment.align(self.vocabulary, weights, encoded, texts)

    def align_units(self, pairs: Sequence[tuple]) -> list[Aligned]:
        """Links words and signs, the units of `text/units.py`, as `align` links words.

        Args:
          pairs: as for `score`.
        """
        texts = [(str(source), str(target)) for source, target in pairs]
        encoded = self.reader(1, warn=False).pairs(pairs)
        weights = self.alignment_weights(encoded)
        return alignment.align_units(self.vocabulary, weights, encoded, texts)


def _is_empty(target: str | Hypothesis | Translation) -> bool:
    """True for what a search returns for a line without tokens or without result."""
    best = target.best if isinstance(target, Translation) else target
    return isinstance(best, Hypothesis) and not best.tokens and not best.text
