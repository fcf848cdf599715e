"""Multi-head and grouped-query attention, one named step at a time.

The package imports nothing heavy by itself: take what you need from its modules,
for example ``from mha_core.attention import GroupedQueryAttention``.
"""
