"""What processes share arrives as it was sent, and errors arrive in all."""

import json

from tests.processes.primitives import arrays


def test_what_two_processes_share_is_what_one_of_them_has(group):
    both = group(2, module="tests.processes.primitives")
    assert both.end() == [0, 0], both.said()
    for number in range(2):
        found = json.loads(both.out(number).splitlines()[-1])  # after Gloo's lines
        host = found.pop("host")
        assert found.pop("errors") == {
            "first": "of 0 alone [True]",
            "another": (f"process 1 on {host}: " if not number else "")
            + "of 1 alone [True]",
            "made": "after 0 items [True]",
            "item": "after 2 items [True]",
            "not the same": f"it of process 1 on {host} is not that of process 0 on "
            f"{host}; mend it [True]",
        }
        arrived = found.pop("arrays")
        assert {name.rpartition(", ")[0] for name in arrived} == {*arrays()}
        different = [name for name, (sent, came) in arrived.items() if sent != came]
        assert not different
        assert found == {
            "numbers": [0, 1],
            "again": [[[0, turn], [1, turn]] for turn in range(3)],
            "large": [True, True],
            "small": ["", None],
            "first": {"made": 0},
            "bytes": "00ff",
            "no bytes": None,
            "none": None,
            "items": [[1, "a"], [0, ""], [], [0, "b"]],
            "no items": [],
            "after them": [0, 1],
        }
