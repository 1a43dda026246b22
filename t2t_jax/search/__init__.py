"""Search algorithms: pure functions over any step function; they know no model.

Read the modules in this order:

    algorithm.py   the interface, and what all algorithms share; length penalties
    beam.py        greedy, beam and diverse beam search
    sampling.py    draws hypotheses token by token
    rules.py       constraints on outputs, as arrays
"""
