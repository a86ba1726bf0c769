"""How the embedded models are made: two species of small models learn to watch the toy world."""
