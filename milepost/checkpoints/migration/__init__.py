"""migrate: a model with learned positions becomes one with other positions."""
