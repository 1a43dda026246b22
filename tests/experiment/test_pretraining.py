"""The experiment of pre-training: its rows, and what they start from."""

from experiments import pretraining


def test_rows_need_the_workdirs_they_start_from():
    def rows(**starts):
        experiment = pretraining.get_experiment(seeds=1, **starts)
        return {row.name: row.config for row in experiment.rows}

    assert [*rows()] == ["scratch"]
    assert [*rows(spans="S")] == ["scratch", "encoder of spans", "all of spans"]
    both = rows(masked="M", spans="S")
    assert len(both) == 6
    assert both["scratch, their pieces"].data.tokenizer == "M/tokenizer.model"
    taken = {name: c.train for name, c in both.items() if c.train.init_from}
    assert {train.init_parts for train in taken.values()} == {
        *("embedding", "encoder,embedding", "encoder,decoder,embedding")
    }
    assert {train.init_from for train in taken.values()} == {"M", "S"}
