"""An agent for editors: the Agent Client Protocol (ACP), version 1, over standard streams."""
