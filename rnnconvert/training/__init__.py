"""The state that training keeps next to the weights, moved with them: optimizer state between frameworks."""
