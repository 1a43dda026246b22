"""The passport of a model: everything that its explanations depend on, as rows."""

from collections.abc import Sequence

import jax

from t2t_jax import __version__
from t2t_jax.data.tokenizers.vocabulary import Vocabulary, show_sizes
from t2t_jax.decoding.inputs import Member
from t2t_jax.model.layers import compute_dtype
from t2t_jax.search.beam import BeamSearch

Rows = tuple[tuple[str, str], ...]


def passport(
    members: Sequence[Member], vocabulary: Vocabulary, algorithm: BeamSearch
) -> Rows:
    """Returns (name, value) rows: of each member, of the search, of the program."""
    rows = []
    for number, member in enumerate(members, 1):
        prefix = f"model {number}: " if len(members) > 1 else ""
        rows += [(prefix + name, value) for name, value in _member(member)]
    rows += [
        ("vocabulary", f"{show_sizes(vocabulary.sizes)} pieces"),
        (
            "search",
            f"beam {algorithm.beam}, {algorithm.nbest} best, "
            f"alpha {algorithm.alpha:g}, penalty {algorithm.penalty}, "
            f"stop {algorithm.stop}",
        ),
        ("computed by", f"t2t_jax {__version__}, jax {jax.__version__} on {_device()}"),
    ]
    return tuple(rows)


def _member(member: Member) -> list[tuple[str, str]]:
    model, data = member.config.model, member.config.data
    steps = ", ".join(f"{step:,}" for step in member.steps) or "none"
    average = "average of steps " if len(member.steps) > 1 else "step "
    return [
        ("model", f"{model.kind}, {member.model.count():,} parameters"),
        ("direction", f"{data.source} to {data.target}"),
        ("trained on", str(data.train)),
        ("checkpoint", average + steps),
        ("SHA-256 of the parameters", member.parameters_sha256()),
        ("type of activations", compute_dtype(model).name),
    ]


def _device() -> str:
    return jax.devices()[0].device_kind
