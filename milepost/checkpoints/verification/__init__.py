"""verify: does a model in memory do with positions what its config asks for?"""
