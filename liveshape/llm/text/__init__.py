"""Text to token ids and back: tokenizers, and messages through chat templates."""
