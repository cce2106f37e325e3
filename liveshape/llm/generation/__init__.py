"""Text generation: prompts, the generation loop, stop strings, constrained decoding, logprobs, chat."""
