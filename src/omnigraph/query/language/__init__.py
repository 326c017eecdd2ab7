"""From `.gq` text to a tree, and back."""
