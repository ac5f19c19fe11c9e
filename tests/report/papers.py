"""Read the figures of the papers from their yaml."""

from dp_erm_bench import registry
from dp_erm_bench.report.figure import Drawing, figures_of


class Paper:
    def __init__(self, name):
        self.name = name
        self.figures = figures_of(registry.read_choice("experiment", name))
        self.PANELS = self.figures[0].panels

    def draw(self, table, folder, config):
        """Draw all figures."""
        folder.mkdir(parents=True, exist_ok=True)
        given = Drawing(table, folder, self.name, config)
        return [path for figure in self.figures for path in figure.draw(given)]

    def figure(self, name):
        """The figure of one name that is no overview."""
        return next(f for f in self.figures if getattr(f, "name", None) == name)


mangold2022, mangold2023, talwar2015 = map(
    Paper, ("mangold2022", "mangold2023", "talwar2015")
)
