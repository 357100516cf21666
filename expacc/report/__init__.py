"""What pages are made of: words, colours, figures, templates."""
