"""Graph transformations of a language model: sampling tail, context length, RoPE tables, float16 KV cache."""
