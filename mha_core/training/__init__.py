"""The recipes that make the shipped weights: grammar, training, and the scores the weights must reach.

``python -m mha_core.training`` trains the grammar model and writes it into the zoo.
"""
