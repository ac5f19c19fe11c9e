"""Write docs/broken-twins.md."""

from tests.twins.table import DOC, all_found, text

DOC.write_text(text(all_found()))
