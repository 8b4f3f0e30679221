"""Processes of a distributed job: started, isolated, watched, and ended with everything that they have started.

Runs on compute nodes: imports no table and no chart library.
"""
