"""`liveshape inspect --html`: a program as one self-contained page."""
