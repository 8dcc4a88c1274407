"""What the Spark peers share."""
