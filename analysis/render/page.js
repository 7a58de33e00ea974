"use strict";
// Tables sort by their headings; what is missing stays at the end.
const key = (cell) => {
  const number = Number.parseFloat(cell.textContent.replaceAll(",", ""));
  return Number.isNaN(number) ? cell.textContent : number;
};
for (const heading of document.querySelectorAll("th")) {
  heading.querySelector("button").addEventListener("click", () => {
    const body = heading.closest("table").tBodies[0];
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const compare = (one, other) => {
      const [a, b] = [key(one.cells[heading.cellIndex]), key(other.cells[heading.cellIndex])];
      if (a === "" || b === "") return (a === "") - (b === "");
      const sign = typeof a === typeof b && typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en");
      return down ? -sign : sign;
    };
    body.append(...[...body.rows].sort(compare));
  });
}
// Links to a folded section open it, and one button opens all.
const folds = [...document.querySelectorAll("details")];
const openLinked = () => {
  const linked = folds.find((one) => `#${one.id}` === location.hash);
  if (linked) linked.open = true;
};
addEventListener("hashchange", openLinked);
openLinked();
const unfold = document.querySelector(".unfold");
if (unfold) {
  const allOpen = () => folds.every((one) => one.open);
  unfold.addEventListener("click", () => {
    const open = !allOpen();
    for (const one of folds) one.open = open;
  });
  for (const one of folds) one.addEventListener("toggle", () => { unfold.textContent = allOpen() ? "Close all" : "Open all"; });
  unfold.hidden = false;
}
