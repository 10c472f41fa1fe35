"""What the model sees: counted, bounded, chosen and explained. Values in, values out."""
