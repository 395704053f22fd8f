"""What the command line is made of: reading the user's file, printing, and the demo."""
