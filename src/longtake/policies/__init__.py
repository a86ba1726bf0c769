"""Retention policies: which tokens stay. One method, one file; `registry.py` lists them by name.

Floor 3: knows the memory alone, no model family and no session.
"""
