"""Measurement for the commands: benchmarks, profiles, perplexity, peak rates, plots."""
