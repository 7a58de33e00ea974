"use strict";
// Everything is there: draw what is in view, and follow filters, colours, printers and keys.
const canvases = [...document.querySelectorAll(".canvas")];
const watch = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    watch.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "300px" });

for (const canvas of canvases) {
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || !canvas.dataset.drawn) return;
    event.preventDefault();
    step(canvas, by);
  });
  canvas.addEventListener("blur", () => canvas.data && Plotly.Fx.unhover(canvas));
}

// What is in view is drawn again at once, the rest when it comes into view.
function redraw() {
  for (const canvas of canvases.filter((one) => one.dataset.drawn)) {
    watch.unobserve(canvas);
    watch.observe(canvas);
  }
}

// Links to a folded section open it.
const folds = [...document.querySelectorAll("details")];
function openLinked() {
  const linked = folds.find((one) => `#${one.id}` === location.hash);
  if (linked) linked.open = true;
}
addEventListener("hashchange", openLinked);
openLinked();

const unfold = document.querySelector(".unfold");
if (unfold) {
  const allOpen = () => folds.every((one) => one.open);
  const name = () => { unfold.textContent = allOpen() ? "Close all" : "Open all"; };
  unfold.addEventListener("click", () => {
    const open = !allOpen();
    for (const one of folds) one.open = open;
  });
  for (const one of folds) one.addEventListener("toggle", name);
  unfold.hidden = false;
}

report.listeners.push(redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  canvases.forEach(draw);
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  canvases.forEach((canvas) => Plotly.purge(canvas)); // with its size on paper
  redraw();
});
applyFilters();
plotly.then(() => {
  if (canvases.length) draw(canvases[0]);
  canvases.forEach((canvas) => watch.observe(canvas));
  document.documentElement.dataset.ready = "yes";
});
