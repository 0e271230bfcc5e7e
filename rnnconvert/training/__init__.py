"""What training keeps beside the weights, moved with them: optimizer state between frameworks."""
