"""What survives a session: notes, episodes, sources, retrieval and the context."""
