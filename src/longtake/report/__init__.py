"""What a session did, as pictures and tables.

Floor 5: knows the session and its memory.
"""
