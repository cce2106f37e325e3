"""Readers of checkpoints: Hugging Face folders (safetensors), GGUF files, llama2.c checkpoints, LoRA adapters."""
