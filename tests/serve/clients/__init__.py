"""Clients of OpenAI's and Anthropic's APIs against `liveshape serve`, in an environment of their own."""
