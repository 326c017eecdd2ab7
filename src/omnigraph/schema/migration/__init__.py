"""From one compiled schema to the next: the steps, and what each costs."""
