"""Measurements: what the core and the app take, next to what people use today."""
