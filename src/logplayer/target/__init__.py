"""Where entries go: the Target protocol, the server around it, one file for each store, and the readers' client."""
