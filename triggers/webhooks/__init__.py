"""Deliveries that others POST to us: who signed them, what they say, and one commit for all that wait together."""
