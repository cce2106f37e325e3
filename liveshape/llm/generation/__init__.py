"""From a prompt to its answer, token by token."""
