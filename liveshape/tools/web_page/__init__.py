"""The static site of `liveshape web`: a page that runs a model in the browser, with everything that it needs."""
