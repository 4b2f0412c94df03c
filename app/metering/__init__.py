"""Metering: what was used, by whom, and what it cost.

money      prices, costs and amounts as integers
windows    the calendar windows of a budget
sketch     latencies as counts that are merged by adding
slope      the growth of a session's prompts
explain    why the spend changed between two periods; the arithmetic is in `shapley`, the sentences in `explain_text`
"""
