"""What was learned: figures, and one HTML page with tables, learning curves and an explorer."""
