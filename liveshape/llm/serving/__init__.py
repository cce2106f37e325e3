"""Asynchronous engines: many callers, each with requests of its own, share one model."""
