"""The table of chips hangs together, and slices that do not exist are told."""

import pytest

from t2t_jax.costs.chips import CHIPS, DEVICES, find_slice, peak
from t2t_jax.io.errors import UserError


@pytest.mark.parametrize("name", CHIPS)
def test_every_chip_has_a_source_and_rates_that_hang_together(name):
    chip = CHIPS[name]
    assert chip.source
    assert chip.bfloat16 >= chip.float32 > 1e12
    assert chip.float32 / chip.bandwidth > 5  # products are not bound by memory
    assert chip.network <= chip.link <= chip.bandwidth
    assert (chip.kind == "gpu") == (chip.network > 0)
    assert 10e9 < chip.memory < 145e9
    assert chip.native or chip.bfloat16 == chip.float32


def test_slices_have_their_chips_and_others_are_told_with_the_nearest():
    for name, count, topology in (
        ("V5E:4x2", 8, "v5e:2x4"),
        ("v5p:2x2x1", 4, "v5p:2x2x1"),
        ("a100-80:1", 1, "a100-80:1"),
    ):
        chips = find_slice(name)
        assert (chips.count, chips.topology) == (count, topology)
    for name, message in (
        ("h10:8", "did you mean 'h100'"),
        ("v5e:3x5", "nearest are v5e:4x4 and v5e:2x4"),
        ("v5e:2x2x2", "no such slice"),
        ("h100:2x4", "want a number of chips, such as h100:8"),
        ("h100:17", "more than 8 are whole nodes of 8"),
    ):
        with pytest.raises(UserError, match=message):
            find_slice(name)


def test_links_are_counted_in_the_slice():
    link = CHIPS["v5e"].link
    for name, links in (
        ("v5e:1x1", 0),
        ("v5e:2x2", 2),  # a square
        ("v5e:2x4", 2.5),  # a ladder: 10 links, 8 chips
        ("v5e:16x16", 4),  # a torus
    ):
        assert find_slice(name).interconnect() == links * link
    assert find_slice("v5p:4x4x4").interconnect() == 6 * CHIPS["v5p"].link
    assert find_slice("h100:8").interconnect() == CHIPS["h100"].link
    assert find_slice("h100:16").interconnect() == 50e9  # two nodes: the network


def test_the_peak_of_a_device_is_that_of_its_chip():
    assert peak("NVIDIA H200", "bfloat16") == 989e12
    assert peak("NVIDIA H200", "float32") == CHIPS["h200"].float32
    assert peak("TPU v5 lite", "bfloat16") == 197e12
    assert peak("cpu", "float32") is None
    assert set(DEVICES.values()) == set(CHIPS)
