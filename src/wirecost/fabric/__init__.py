"""Networks: emulated hosts, what their links really give, and whatever else stands between ranks.

Runs on compute nodes: imports no table and no chart library.
"""
