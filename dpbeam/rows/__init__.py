"""Rows of somebody's own pipeline: where user and item lie in its elements, and rows of what is released."""
