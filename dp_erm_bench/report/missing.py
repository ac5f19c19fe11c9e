"""What is raised where a table does not hold what a figure or a claim needs."""


class Missing(Exception):
    """A line is not in the table; says why."""
