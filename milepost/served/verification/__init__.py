"""verify, for a model behind a server: is it the model that it should be, and does all of a text reach it?"""
