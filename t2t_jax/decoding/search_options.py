"""Builds search algorithms from a translator's options, filled in and checked."""

import dataclasses
from typing import Any

from t2t_jax.config import DecodeConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.search.algorithm import PENALTIES
from t2t_jax.search.beam import STOPS, BeamSearch
from t2t_jax.search.diverse import DiverseBeamSearch
from t2t_jax.search.sampling import Sampling, check_sampling


def beam_search_algorithm(
    decode: DecodeConfig,
    vocabulary: Vocabulary,
    *,
    beam: int | None,
    nbest: int,
    stop: str | None,
    alpha: float | None,
    penalty: str | None,
    groups: int | None = None,
    diversity: float | None = None,
) -> BeamSearch | DiverseBeamSearch:
    """Returns the beam search of these options; None takes the value of `decode`.

    It is diverse with more `groups` than one.

    Raises:
      UserError: an option is out of its range. (`BeamSearch` itself checks nothing.)
    """
    algorithm = BeamSearch(
        beam=decode.beam if beam is None else beam,
        nbest=nbest,
        stop=decode.stop if stop is None else stop,
        **penalty_options(decode, alpha, penalty),
        **_special_tokens(vocabulary),
    )
    beam, stop = algorithm.beam, algorithm.stop
    if beam < 1:
        raise UserError(f"beam={beam}; want at least 1 (1 is greedy search)")
    if not 1 <= nbest <= beam:
        raise UserError(
            f"nbest={nbest} with beam={beam}; want 1 <= nbest <= beam: set beam="
            f"{max(nbest, 1)} or more, or a smaller nbest"
        )
    if stop not in STOPS:
        raise UserError(f"stop={stop!r}{did_you_mean(stop, STOPS)}")
    groups = decode.groups if groups is None else groups
    if groups < 1:
        raise UserError(f"groups={groups}; want at least 1 (1 is the plain beam)")
    if beam % groups:
        wider = -(-beam // groups) * groups
        raise UserError(
            f"groups={groups} with beam={beam}; the groups of a beam are equally wide: "
            f"set beam={wider}, or other groups"
        )
    if groups == 1:
        if diversity is not None:
            raise UserError(
                f"diversity={diversity} with groups=1; it acts between groups: set "
                "groups to 2 or more, or leave diversity out"
            )
        return algorithm
    diversity = decode.diversity if diversity is None else float(diversity)
    if not 0 <= diversity < float("inf"):
        raise UserError(f"diversity={diversity}; want at least 0 (0 has no effect)")
    return DiverseBeamSearch(
        groups=groups, diversity=diversity, **dataclasses.asdict(algorithm)
    )


def sampling_algorithm(
    decode: DecodeConfig,
    vocabulary: Vocabulary,
    *,
    samples: int,
    temperature: float,
    top_k: int,
    top_p: float,
    epsilon: float,
    alpha: float | None,
    penalty: str | None,
) -> Sampling:
    """Returns the sampling of these options; None takes the value of `decode`.

    Raises:
      UserError: an option is out of its range.
    """
    if samples < 1:
        raise UserError(f"samples={samples}; want at least 1")
    try:
        check_sampling(temperature, top_k, top_p, epsilon)
    except ValueError as e:
        raise UserError(str(e)) from None
    return Sampling(
        samples=samples,
        temperature=float(temperature),
        top_k=top_k,
        top_p=float(top_p),
        epsilon=float(epsilon),
        **penalty_options(decode, alpha, penalty),
        **_special_tokens(vocabulary),
    )


def penalty_options(
    decode: DecodeConfig, alpha: float | None, penalty: str | None
) -> dict:
    """Returns `alpha` and `penalty`; None takes the value of `decode`.

    Raises:
      UserError: no such penalty, or a negative or infinite `alpha`.
    """
    alpha = decode.alpha if alpha is None else float(alpha)
    penalty = decode.penalty if penalty is None else penalty
    if penalty not in PENALTIES:
        raise UserError(f"penalty={penalty!r}{did_you_mean(penalty, PENALTIES)}")
    if not 0 <= alpha < float("inf"):
        raise UserError(f"alpha={alpha}; want at least 0 (0 is no length penalty)")
    return {"alpha": alpha, "penalty": penalty}


def _special_tokens(vocabulary: Vocabulary) -> dict[str, Any]:
    names = "bos", "eos", "pad", "never"
    return {name: getattr(vocabulary, name) for name in names}
