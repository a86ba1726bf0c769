"""Measurements of longtake on this machine; each is one command, `python -m benchmarks.core` the first."""
