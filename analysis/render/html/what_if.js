"use strict";
// Sliders over a grid of predictions: every value that is drawn is one of the grid's, none is computed here.
const move = (root) => {
  const grid = JSON.parse(root.querySelector("script").textContent);
  const names = grid.axes.map((axis) => axis.name);
  const last = names.length - 1; // nodes
  const places = () => names.map((name) => Number(root.querySelector(`input[data-axis="${name}"]`).value));
  // The flat index of a point; the axes are in the order of the grid's loops, nodes fastest.
  const indexOf = (at) => at.reduce((sum, place, axis) => sum * grid.axes[axis].labels.length + place, 0);
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const make = (parent, tag, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.textContent = text;
    parent.append(element);
    return element;
  };

  const left = 52, right = 640, top_ = 14, bottom = 336;
  const nodes = grid.axes[last].labels.map((label) => Number(label));
  const spread = Math.max(1, Math.log2(nodes.at(-1) / nodes[0]));
  const x = (count) => left + (Math.log2(count / nodes[0]) / spread) * (right - left);
  const most = Math.max(1.05, ...grid.backends.flatMap((backend) => backend.high));
  const y = (share) => bottom - (Math.max(0, share) / most) * (bottom - top_);

  const drawCurves = (at) => {
    const picture = root.querySelector(".over-nodes");
    picture.replaceChildren();
    for (let share = 0; share <= most; share += 0.25) {
      make(picture, "line", { class: share === 1 ? "ideal" : "rule", x1: left, x2: right, y1: y(share), y2: y(share) });
      make(picture, "text", { class: "faint", x: left - 8, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`);
    }
    const step = Math.ceil(nodes.length / 10);
    nodes.forEach((count, place) => {
      if (place % step === 0 || place === nodes.length - 1) make(picture, "text", { class: "faint", x: x(count), y: bottom + 18, "text-anchor": "middle" }, String(count));
    });
    make(picture, "text", { class: "faint", x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle" }, "nodes with workers");
    make(picture, "line", { class: "rule", x1: x(nodes[at[last]]), x2: x(nodes[at[last]]), y1: top_, y2: bottom });
    const labels = [];
    grid.backends.forEach((backend) => {
      const indices = nodes.map((_, place) => indexOf([...at.slice(0, last), place]));
      const asked = nodes.map((_, place) => indexOf([...grid.asked.slice(0, last), place]));
      const edge = (values) => indices.map((index, place) => `${x(nodes[place])},${y(values[index])}`);
      make(picture, "polygon", { points: [...edge(backend.high), ...edge(backend.low).reverse()].join(" "), fill: backend.color, "fill-opacity": 0.18 });
      asked.forEach((index, place) => make(picture, "circle", { class: "asked", cx: x(nodes[place]), cy: y(backend.efficiency[index]), r: 4, stroke: backend.color }));
      indices.forEach((index, place) => make(picture, "circle", { cx: x(nodes[place]), cy: y(backend.efficiency[index]), r: 4, fill: backend.color }));
      labels.push([y(backend.efficiency[indices.at(-1)]), backend]);
    });
    // Names beside the last markers, far enough apart to be read.
    let free = top_;
    labels.sort((one, other) => one[0] - other[0]).forEach(([height, backend]) => {
      free = Math.max(free, height);
      make(picture, "text", { class: "name", x: right + 12, y: free + 4 }, backend.name);
      make(picture, "rect", { x: right + 6, y: free - 5, width: 3, height: 11, fill: backend.color });
      free += 16;
    });
  };

  const drawParts = (at) => {
    const picture = root.querySelector(".shares");
    picture.replaceChildren();
    const height = 34, from = 130, to = 740, index = indexOf(at);
    picture.setAttribute("viewBox", `0 0 760 ${height * grid.backends.length + 30}`);
    grid.backends.forEach((backend, row) => {
      let begin = 0;
      const top = row * height + 4;
      make(picture, "text", { x: from - 10, y: top + 16, "text-anchor": "end" }, backend.name);
      const parts = [["kept", backend.efficiency[index], grid.kept], ...grid.losses.map((loss) => [loss.name, backend.losses[loss.name][index], loss.color])];
      const whole = parts.reduce((sum, part) => sum + Math.max(0, part[1]), 0);
      parts.forEach(([name, share, color]) => {
        const width = (Math.max(0, share) / whole) * (to - from);
        const bar = make(picture, "rect", { x: from + begin, y: top, width, height: 22, fill: color });
        make(bar, "title", {}, `${name} ${percent(share)}`);
        if (width > 44) make(picture, "text", { class: "share", x: from + begin + 6, y: top + 15 }, percent(share));
        begin += width;
      });
    });
    let at_ = from;
    [["kept", grid.kept], ...grid.losses.map((loss) => [loss.name, loss.color])].forEach(([name, color]) => {
      const top = grid.backends.length * height + 8;
      make(picture, "rect", { x: at_, y: top, width: 12, height: 12, fill: color });
      make(picture, "text", { class: "faint", x: at_ + 18, y: top + 11 }, name);
      at_ += 40 + 7 * name.length;
    });
  };

  const show = () => {
    const at = places(), index = indexOf(at);
    names.forEach((name, axis) => { root.querySelector(`output[data-axis="${name}"]`).textContent = grid.axes[axis].labels[at[axis]]; });
    drawCurves(at);
    drawParts(at);
    const told = grid.backends.map((backend) => `${backend.name} ${percent(backend.efficiency[index])} [${percent(backend.low[index])}, ${percent(backend.high[index])}], ${backend.rate[index].toLocaleString("en", { maximumSignificantDigits: 4 })} samples/s`);
    root.querySelector(".says").textContent = `${nodes[at[last]]} nodes: ${told.join("; ")}.`;
    root.querySelector(".where").textContent = `Where the predicted step goes on ${nodes[at[last]]} nodes`;
  };

  const form = root.querySelector("form");
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
};

document.querySelectorAll(".what-if").forEach(move);
document.documentElement.dataset.ready = "yes";
