"""Explore: a local page of pictures that move. Every number comes from the package; this folder asks, `draw` draws.

answer      a query, such as ``view=clocks&a=rope``, to plain data: figures, a sentence, formulas, sliders
views/      one page for each view; view.py is what they take and give
arguments   the sliders of an encoding, read from its signature
specs       specs with limits on their sizes, and with an argument moved
words       English and Chinese
server      the answers over HTTP, on 127.0.0.1; app.py is the same for a Hugging Face Space
page/       what the browser gets: HTML, a style and a script; no library, nothing from elsewhere
"""
