"""What one paper alone needs: what a trial computes, and what claims are judged by."""
