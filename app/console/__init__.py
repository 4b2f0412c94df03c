"""The web console: a shell of its own process. It reads through a pool that cannot write, and acts through the use cases.

app.py, guard.py     routes, sessions, headers        looks.py, stream.py   shared reads, live parts
pages/               parse, read, render              views/                pure: from rows to words, points and lines
queries.py           its own reads                    templates/, static/   what a browser gets
"""
