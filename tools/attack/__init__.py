"""A standing attack on milepost: `make attack`, or `python -m tools.attack --inputs 100000 --kills 300`.

    a target      one file of this folder: `prepare(folder)` gives what its inputs are made of, and `attack(state, rng)`
                  makes one hostile input and hands it to the package
    an input      a number: the same number, target and seed make the same input again (`--only gguf --first 1234`)
    a finding     a traceback that is none of our errors, a number that is wrong, more than 2 s or 500 MB, lost work

Inputs are valid files that are changed where their structure is: a count, a length, a type, a nesting, a name, an end.
Each target runs in a process of its own, so that one that crashes is a finding too.

atheris 3.0 (coverage-guided) was tried, with the package instrumented, on three readers: 54,562 GGUF headers in 91 s,
124,601 specs in 76 s, 152,872 configs in 76 s, no finding. It is not used here: what coverage would have to discover,
the structure of a config, a spec or a header, is known and is what is changed.
"""
