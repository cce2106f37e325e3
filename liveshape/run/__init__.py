"""Execution of a plan on a device: upload, encode, submit, readback, host fallback."""
