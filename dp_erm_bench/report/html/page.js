"use strict";

// Tables: a click on a column sorts by it, words in the field above keep rows with all
// of them. Without this script all rows are there, in the order of the files.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];

  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text.replace(/^-?inf$/, (one) => one.replace("inf", "Infinity")));
    return text === "" || Number.isNaN(number) ? text : number;
  };
  for (const row of rows) {
    heads.forEach((_, column) => {
      row.cells[column].classList.toggle("number", typeof value(row, column) === "number");
    });
  }
  const compare = (a, b) => {
    const texts = [typeof a === "string", typeof b === "string"];
    if (texts[0] !== texts[1]) return texts[0] - texts[1];
    return texts[0] ? a.localeCompare(b, undefined, {numeric: true}) : a - b;
  };
  const sort = (column) => {
    const down = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.setAttribute("aria-sort", "none");
    heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    body.append(...rows.sort((a, b) => sign * compare(value(a, column), value(b, column))));
  };
  heads.forEach((head, column) => {
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(column));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sort(column);
    });
  });

  if (rows.length < 6) continue;
  const field = document.createElement("input");
  const count = document.createElement("span");
  field.type = "search";
  field.placeholder = "filter rows";
  field.setAttribute("aria-label", `Filter: ${table.getAttribute("aria-label")}`);
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  field.addEventListener("input", filter);
  const bar = document.createElement("div");
  bar.className = "filter";
  bar.append(field, count);
  table.parentElement.before(bar);
  filter();
}

// Pictures: a click opens one in the size of the window, the next ones enlarge it.
const dialog = document.createElement("dialog");
const large = document.createElement("img");
dialog.className = "enlarged";
dialog.append(large);
document.body.append(dialog);
let scale = 1;
const resize = () => {
  const fit = Math.min(
    (0.96 * window.innerWidth) / large.naturalWidth,
    (0.94 * window.innerHeight) / large.naturalHeight,
  );
  large.width = large.naturalWidth * fit * scale;
};
for (const button of document.querySelectorAll("button.zoom")) {
  button.addEventListener("click", () => {
    const image = button.firstElementChild;
    scale = 1;
    large.alt = image.alt;
    large.onload = resize;
    large.src = image.src;
    dialog.showModal();
  });
}
large.addEventListener("click", () => {
  scale = scale >= 4 ? 1 : 2 * scale;
  resize();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

// A link into a part that is closed opens it.
const reveal = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let one = target; one; one = one.parentElement) {
    if (one.tagName === "DETAILS") one.open = true;
  }
  for (const one of target.querySelectorAll(":scope > details")) one.open = true;
  target.scrollIntoView();
};
window.addEventListener("hashchange", reveal);
reveal();
