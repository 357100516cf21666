"""What to run → rows on disk: work items, the store, the engines that carry items out."""
