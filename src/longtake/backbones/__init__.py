"""Model families: how each turns frames and words into what its language model takes.

Floor 2: knows transformers and floor 1. One file per family; `load.py` picks it by the checkpoint's config.
"""
