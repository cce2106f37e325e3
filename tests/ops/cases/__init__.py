"""Every operator case: a module per family, each with a list CASES."""

from tests.ops.cases import normalization

CASES = [*normalization.CASES]
