"""Metering: what was used, by whom, and what it cost.

money      prices, costs and amounts as integers
windows    the calendar windows of a budget
budgets    what is spent and held; the arithmetic is in `budget_rules`, what an owner writes in `budget_terms`
lanes      the combinations of budgets that apply to queued work
slices     what one process may spend on synchronous requests, stored by `slice_rows`
sketch     latencies as counts that are merged by adding
slope      the growth of a session's prompts
explain    why the spend changed between two periods; the arithmetic is in `shapley`, the sentences in `explain_text`
"""
