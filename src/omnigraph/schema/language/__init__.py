"""From `.pg` text to a tree, and on to the checked shape of a schema."""
