"""Plans runs: describes a config beside the paper, and forecasts memory and time.

`describe.py` needs only a config; `plan.py` compiles the training step for chips that
are not here.
"""
