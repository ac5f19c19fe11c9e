"""What is known before a run: public numbers, and settings that follow from them."""
