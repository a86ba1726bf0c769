"""Measuring what a policy remembers: streams with known truth, watched once per policy, questioned at their end."""
