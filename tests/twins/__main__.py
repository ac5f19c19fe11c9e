"""Write the page broken_twins."""

from tests.twins.table import DOC, all_found, text

DOC.write_text(text(all_found()))
