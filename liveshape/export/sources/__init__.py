"""Checkpoints as they are found: Hugging Face folders, GGUF files, llama2.c checkpoints, adapters."""
