"""The workdir, the folder of one run: its files, and the lock that reserves it."""
