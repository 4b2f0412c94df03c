"""Budgets: what an account, a key or a workflow may spend in a window, and what is reserved of it before work runs.

rules     amounts, the size of reservations, and what may become of one. Pure
terms     what an owner writes, and a budget as its owner reads it
tables    budgets, and what each process has reserved for synchronous requests
sql       the statements; a chunk carries the ids of its budgets and what they have reserved for it
service   the rows of budgets, their windows, what is spent, the verbs of owners, and the events `budget.*`
queued    what the steward does for queued work: reserve, take back, settle, move
calls     what one process may spend on synchronous requests
"""
