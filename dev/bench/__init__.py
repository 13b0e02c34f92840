"""Measurements: one JSON line each on standard output, nothing written anywhere else.

`python -m bench NAME` runs one; the environment says where Pulsar is, as for the command line. Each module
holds one subject. Numbers are compared with a base measured in the same run, because machines differ.
"""
