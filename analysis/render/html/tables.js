"use strict";
// Tables sort by their headings, show some rows until asked for all, and download what is shown as CSV.
const ROWS_AT_FIRST = 100;

for (const box of document.querySelectorAll(".table")) {
  const body = box.querySelector("tbody");
  const headings = [...box.querySelectorAll("th")];
  const rows = [...body.rows];
  const more = box.querySelector(".more");
  const { columns, rows: data } = report.data.tables[box.dataset.name];
  let order = rows;
  let limit = ROWS_AT_FIRST;

  const left = () => order.filter((row) => report.matches(report.tagsOf(row), report.chosen()));

  const show = () => {
    const matching = left();
    const visible = new Set(matching.slice(0, limit));
    for (const row of rows) row.hidden = !visible.has(row);
    more.hidden = matching.length <= limit;
    more.textContent = `Show all ${matching.length} rows`;
    more.dataset.paper = `${limit} of ${matching.length} rows; all are on the page and in its CSV`;
    box.querySelector(".none").hidden = matching.length > 0;
  };

  const sort = (heading) => {
    const index = headings.indexOf(heading);
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of headings) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keys = new Map(rows.map((row) => [row, key(row.cells[index], heading)]));
    order = [...rows].sort((one, other) => compare(keys.get(one), keys.get(other), down));
    body.append(...order);
    show();
  };

  for (const heading of headings) heading.querySelector("button").addEventListener("click", () => sort(heading));
  more.addEventListener("click", () => { limit = Infinity; show(); });
  box.querySelector(".download").addEventListener("click", () => {
    const lines = left().map((row) => data[Number(row.dataset.row)]);
    download(`${box.dataset.name}.csv`, [columns, ...lines].map((line) => line.map(field).join(",")).join("\n") + "\n");
  });
  report.listeners.push(show);
}

// A number, null where there is none in a column of numbers, or text in a column of words.
function key(cell, heading) {
  if (cell.dataset.order !== undefined) return Number(cell.dataset.order);
  return heading.classList.contains("number") ? null : cell.textContent;
}

// What has no number stays at the end in both directions.
function compare(one, other, down) {
  if (one === null || other === null) return (one === null) - (other === null);
  const sign = typeof one === "number" && typeof other === "number"
    ? one - other
    : String(one).localeCompare(String(other), "en", { numeric: true });
  return down ? -sign : sign;
}

// Text that a spreadsheet would take for a formula begins with an apostrophe.
function field(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
