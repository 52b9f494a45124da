"""What everybody shows with: figures as numbers, drawings of them as SVG and PNG, and documents as page, Markdown,
terminal and notebook.

It is below all other parts: it imports no torch and nothing of milepost but the writing of files, so that any part
may draw.
"""
