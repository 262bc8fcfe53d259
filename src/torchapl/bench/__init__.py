"""Measurements of the operator and of whole training steps."""
