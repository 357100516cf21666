"""The pages of the site that are made of the registry, the results and the docstrings."""
