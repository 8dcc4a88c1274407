"""The page in Airflow: what counts, what waits, why, and what to do about it.

Server-rendered HTML; plots by uPlot, one small script for dialogs and refreshing. All of it is in
this package: nothing is loaded from elsewhere.
"""
