"""What every training records besides its values, in a callback and in a loop of your own."""
