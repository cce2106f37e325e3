"""Tokenization: text to token ids and back, chat templates and their sandbox."""
