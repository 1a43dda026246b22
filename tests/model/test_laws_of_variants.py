"""Every line of every table of the model obeys the laws (tests/model/laws.py)."""

import jax
import pytest

from t2t_jax.model import attention
from tests.model.cases import alone, halves, pairs
from tests.model.laws import (
    COMPOSITION,
    LAWS,
    SLOW,
    initial_weights_are_independent,
    laws_of,
    sharded_is_one_device,
)
from tests.model.subject import Excused, subject

pytestmark = pytest.mark.usefixtures(
    "eight_devices", "small_blocks", "_programs_are_not_stored"
)


@pytest.fixture(scope="module")
def small_blocks():
    """Rows of the tests have several blocks of neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "SMALLEST_BLOCK", 4)
        yield


@pytest.fixture(scope="module")
def _programs_are_not_stored():
    """No other file has these programs; storing them all takes seconds."""
    option = "jax_persistent_cache_min_compile_time_secs"
    previous = getattr(jax.config, option)
    jax.config.update(option, float("inf"))
    yield
    jax.config.update(option, previous)


def obeys(case, law, group):
    try:
        figure = law(subject(case, group))
    except Excused as e:
        pytest.skip(str(e))
    assert figure <= LAWS[law], (
        f"{law.__name__}: {law.__doc__.partition('.')[0]}. Got {figure:.2g}, want at "
        f"most {LAWS[law]:g}{' (inf may be NaN)' if figure == float('inf') else ''}; "
        "docs/reference/property-tests.md has likely causes"
    )


@pytest.mark.parametrize(
    ("case", "law"),
    [(name, law) for name, case in alone().items() for law in laws_of(case)],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_a_variant_obeys(case, law):
    obeys(case, law, "alone")


@pytest.mark.slow
@pytest.mark.parametrize("case", alone())
def test_a_variant_is_sharded_and_drops_out(case):
    for law in SLOW:
        obeys(case, law, "alone")


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 8, 1), (2, 4, 1), (4, 1, 2), (1, 4, 2)])
@pytest.mark.parametrize("case", [name for name in alone() if "kind" in name])
def test_a_model_is_the_same_on_any_mesh(case, sizes):
    assert sharded_is_one_device(subject(case), sizes) <= LAWS[sharded_is_one_device]


@pytest.mark.parametrize("law", COMPOSITION, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", pairs(), ids=str)  # however long: -k finds them
def test_any_two_variants_compose(case, law):
    obeys(case, law, "pairs")


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [*COMPOSITION, initial_weights_are_independent], ids=lambda law: law.__name__
)
@pytest.mark.parametrize("case", halves(), ids=str)
def test_halves_compose(case, law):
    obeys(case, law, "halves")
