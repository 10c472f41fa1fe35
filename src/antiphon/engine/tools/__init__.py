"""Tools that a model may call: what they are, how typed functions become them, how they run."""
