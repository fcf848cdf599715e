"""What is shown, and where state lives."""
