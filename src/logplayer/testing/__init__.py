"""Ships to users: simulator, checkers, and conformance kits for targets and logs."""
