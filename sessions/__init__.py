"""One decision: the session's flow, deciders and decisions."""
