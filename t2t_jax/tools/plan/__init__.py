"""Plans runs: describes a config next to the paper, and forecasts memory and time.

`describe.py` needs only a config. `forecast.py` plans for chips that are not here, and
compiles the step for them with their compilers (`compilers.py`). Of the program that
`hlo.py` reads, `kernels.py` lists what runs and `collectives.py` what chips exchange.
"""
