"""What wakes the drain and brings items in."""
