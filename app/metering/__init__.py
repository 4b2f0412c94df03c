"""Metering: what was used, by whom, and what it cost.

money      prices, costs and amounts as integers
lines      who and what is told apart; `spend_labels` reads the labels, `families` names prompts that begin alike
ledger     books usage by hour and line; `sync_usage` adds up that of synchronous requests, `sessions` their prompts
windows    the calendar windows of a budget; `periods` are those that a person names
sketch     latencies as counts that are merged by adding
slope      the growth of a session's prompts
reports    usage, cost and latency by parts of a line; also `session_report`, `explained`, `variants`
explain    why the spend changed between two periods; the arithmetic is in `shapley`, the sentences in `explain_text`
compare    two variants, with intervals
focus      charges as rows of FOCUS; `documents` has the reports as JSON
"""
