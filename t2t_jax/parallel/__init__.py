"""Devices and processes: the mesh and its sharding rules, and how processes cooperate.

Also the process setup that makes a CPU fast, and the cache of compiled programs.
"""
