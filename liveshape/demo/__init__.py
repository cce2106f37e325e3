"""The program that `liveshape demo` runs, made by examples/make_demo.py."""
