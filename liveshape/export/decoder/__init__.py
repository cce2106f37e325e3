"""A decoder as operators, in the form that fuses."""
