"""Long fault campaigns on real processes, for ``make soak``; a short one runs with every change."""
