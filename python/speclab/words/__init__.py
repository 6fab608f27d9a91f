"""One module for each word of `./run`. A module whose docstring says "standard library alone" runs on the system's
python3, without the environment.
"""
