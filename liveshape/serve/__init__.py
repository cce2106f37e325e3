"""Serving language models over HTTP."""
