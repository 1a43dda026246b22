"""Cross-entropies of pairs by trained models: improbable pairs are worth a look.

cross_entropy   -log p(target | source), in nats a token
dual            |H1 - H2| + (H1 + H2) / 2 for the models of both directions: dual
                conditional cross-entropy (Junczys-Dowmunt 2018, section 3)
contrast        H - H of another model: the difference of Moore and Lewis (2010), of
                a model of the wanted domain (--workdir) and one of others
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.data.corpus import Pair
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.text.languages import same_language

BATCH = 4_096  # pairs that are sorted by length and scored together


class ModelScores:
    """Scores pairs by one, two or three models; larger is worse.

    `reverse` is a run of the other direction, `contrast` another one of the same.
    `names` are those of the scores, rules of `rules.RULES`.
    """

    def __init__(
        self,
        workdir: str,
        reverse: str | None,
        contrast: str | None,
        languages: tuple[str, str],
    ):
        self.model = _load(workdir, "--workdir", languages)
        self._reverse = _load(reverse, "--reverse", languages[::-1])
        self._contrast = _load(contrast, "--contrast", languages)
        self.names = ["cross_entropy"]
        self.names += ["dual"] if self._reverse else []
        self.names += ["contrast"] if self._contrast else []

    def score(self, pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
        """Returns the scores of some pairs by name, each float32 [pairs], in nats."""
        forward = _entropies(self.model, pairs)
        scores = {"cross_entropy": forward}
        if self._reverse:
            backward = _entropies(self._reverse, [(t, s) for s, t in pairs])
            scores["dual"] = np.abs(forward - backward) + (forward + backward) / 2
        if self._contrast:
            scores["contrast"] = forward - _entropies(self._contrast, pairs)
        return scores


def _load(workdir, flag: str, languages: tuple[str, str]) -> Translator | None:
    if not workdir:
        return None
    model = Translator.load(workdir)
    data, kind = model.config.data, model.config.task.kind
    direction = data.source, data.target
    if kind != "translation" or not all(map(same_language, direction, languages)):
        raise UserError(
            f"{flag}={workdir} is a run of task.kind={kind!r} from {data.source!r} to "
            f"{data.target!r}; want a translation model from {languages[0]!r} to "
            f"{languages[1]!r}"
        )
    return model


def _entropies(model: Translator, pairs: Sequence[Pair]) -> np.ndarray:
    batches = (pairs[n : n + BATCH] for n in range(0, len(pairs), BATCH))
    scores = (s for batch in batches for s in model.score(batch, warn=False))
    entropies = [-score.log_prob / max(1, len(score.log_probs)) for score in scores]
    return np.array(entropies, np.float32)
