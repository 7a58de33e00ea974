"use strict";
// What is chosen in the filters, and what it leaves to be seen. Nothing chosen: everything.
const report = { data: JSON.parse(document.getElementById("data").textContent), listeners: [] };

const TAGS = ["workload", "framework", "backend"];
const filters = document.querySelector(".filters");

report.chosen = () =>
  TAGS.map((tag) => filters
    ? [...filters.querySelectorAll(`input[name=${tag}]:checked`)].map((input) => input.value)
    : []);

// `tags` are [workload, framework, backend]; an empty one belongs to no choice and stays, one of several words to each.
report.matches = (tags, chosen) =>
  tags.every((tag, index) => !tag || !chosen[index].length || tag.split(" ").some((one) => chosen[index].includes(one)));

report.tagsOf = (element) => TAGS.map((tag) => element.dataset[tag] ?? "");

// A figure that would be empty is not shown.
function hasPoints(element, chosen) {
  const plot = report.data.plots[element.querySelector(".canvas")?.id];
  return !plot || plot.series.some((one) => report.matches(one.tags, chosen));
}

function applyFilters() {
  const chosen = report.chosen();
  const active = chosen.some((values) => values.length);
  for (const element of document.querySelectorAll("[data-workload]:not(tr)"))
    element.hidden = !report.matches(report.tagsOf(element), chosen) || !hasPoints(element, chosen);
  for (const listener of report.listeners) listener(chosen);
  if (!filters) return;
  filters.querySelector("button").hidden = !active;
  const rows = [...document.querySelectorAll("#table-numbers tbody tr")];
  const left = rows.filter((row) => report.matches(report.tagsOf(row), chosen)).length;
  filters.querySelector("output").textContent = active ? `${left} of ${rows.length} cells` : "";
}

if (filters) {
  filters.addEventListener("change", applyFilters);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => {
    const focused = document.activeElement;
    setTimeout(() => {
      applyFilters();
      if (focused?.closest(".filters")) filters.querySelector("input").focus();
    });
  });
}
