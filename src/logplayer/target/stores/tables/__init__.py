"""Stores that write rows into the tables of a user's own schema."""
