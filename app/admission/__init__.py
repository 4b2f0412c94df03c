"""Admission: what every request passes before it is run or stored: scope of the key, labels, policy, quotas.

`Admission.admit` is the one function that every route calls, for each request and for each item of a batch.
"""
