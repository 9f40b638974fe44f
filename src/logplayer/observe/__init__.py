"""What processes note about themselves: counts and delays, a time line, log lines, traces. It decides nothing."""
