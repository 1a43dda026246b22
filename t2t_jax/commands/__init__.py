"""The commands, one thin file each: flags in, one call, text out.

`launch.py` lists them, `flags.py` defines the flags that several share, `runner.py`
runs one and turns errors into messages.
"""
