"""Scores that retention policies share. A signal says what a token is worth; which tokens stay is a policy's rule."""
