"""The backends of `attend`: each takes a `Call` and gives the same numbers.

`reference` is the definition. Each of the others is a file with two functions: ``obstacle(call)`` says why it can't do
a call (None: it can), and ``run(call)`` does it.
"""
