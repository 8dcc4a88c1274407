"""Corrections by a person: roll back, park or skip txids."""
