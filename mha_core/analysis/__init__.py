"""Questions about a trace, each answered by a small frozen result."""
