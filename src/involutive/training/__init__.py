"""Learning proposals: objectives, critics, estimators, and the one loop that runs them all."""
