"""What a stream remembers, as tensors: slabs, recurrent states, the ledger, attention and rotation.

Floor 1: knows torch and the library's cache classes, no video and no model family.
"""
