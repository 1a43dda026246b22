"""Every line of every table of the model obeys the laws (tests/model/laws.py)."""

import pytest

from t2t_jax.model import restricted
from tests.model.cases import alone, pairs, product
from tests.model.laws import COMPOSITION, LAWS
from tests.model.subject import Excused, subject

pytestmark = pytest.mark.usefixtures("eight_devices", "quick_compiler", "small_blocks")


@pytest.fixture(scope="module")
def small_blocks():
    """Rows of the tests have several blocks of neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restricted, "SMALLEST_BLOCK", 4)
        yield


def obeys(case, law, group):
    try:
        figure = law(subject(case, group))
    except Excused as e:
        pytest.skip(str(e))
    assert figure <= LAWS[law]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", alone())
def test_a_variant_obeys(case, law):
    obeys(case, law, "alone")


@pytest.mark.parametrize("law", COMPOSITION, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", pairs())
def test_any_two_variants_compose(case, law):
    obeys(case, law, "pairs")


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", product())
def test_all_variants_compose(case, law):
    obeys(case, law, "product")
