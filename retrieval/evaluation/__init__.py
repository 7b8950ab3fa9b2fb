"""Evaluation of runs: measures, significance tests, analyses and plots."""
