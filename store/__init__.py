"""All durable state and all SQL."""
