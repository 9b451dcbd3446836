"""The checkpoint: what is durable, who owns it, and what becomes of it when storage fails."""
