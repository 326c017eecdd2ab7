"""Every rule of the data, and what a broken one is called."""
