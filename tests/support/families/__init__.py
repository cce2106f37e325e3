"""The test programs, one file per family of operators."""
