"use strict";
// Plots are drawn when they come into view, again when filters or colours change, and told point by point to keyboards.
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };
const drawers = {};

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Plotly reads a few HTML tags in its texts; text from records has none.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const told = (text) => text.split("\n").map(plain).join("<br>");
const colorOf = (look) => (look.color === "#000000" ? variable("--ink") : look.color);

function layoutWith(own) {
  const font = { family: variable("--font"), size: 12, color: variable("--muted") };
  return {
    font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
    hovermode: "closest", margin: { l: 52, r: 12, t: 10, b: 46 },
    hoverlabel: { bgcolor: variable("--paper"), bordercolor: variable("--faint"), align: "left",
      font: { ...font, color: variable("--ink") } },
    ...own,
  };
}

function axisWith(axis, own = {}) {
  const ticks = axis.places.length
    ? { tickvals: axis.places, ticktext: axis.labels.map(told) }
    : {};
  const range = axis.low === null ? {} : {
    range: axis.kind === "log" ? [Math.log10(axis.low), Math.log10(axis.high)] : [axis.low, axis.high],
  };
  return {
    type: { log: "log", time: "date", linear: "linear" }[axis.kind], fixedrange: true, zeroline: false, automargin: true,
    title: { text: plain(axis.title), standoff: 8 }, gridcolor: variable("--rule"), linecolor: variable("--faint"),
    ...ticks, ...range, ...own,
  };
}

drawers.curves = (name) => {
  const { x, y, series, guides } = report.data.plots[name];
  const chosen = report.chosen();
  const shown = series.filter((one) => report.matches(one.tags, chosen));
  const dense = shown.reduce((sum, one) => sum + one.x.length, 0) > 300;
  const traces = shown.map((one) => {
    const look = report.data.looks[one.look] ?? { color: variable("--muted"), symbol: "circle", dash: "solid" };
    const color = colorOf(look);
    const bars = one.low.length && !one.band ? {
      error_y: { type: "data", symmetric: false, thickness: 1.2, width: 4, color,
        array: one.high.map((high, i) => (high === null ? 0 : high - one.y[i])),
        arrayminus: one.low.map((low, i) => (low === null ? 0 : one.y[i] - low)) },
    } : {};
    return {
      type: "scatter", mode: one.joined ? "lines+markers" : "markers", name: plain(one.name), x: one.x, y: one.y, ...bars,
      text: one.text.map(told), hovertemplate: "%{text}<extra></extra>",
      line: { color, width: 2, dash: look.dash },
      marker: { color, symbol: look.symbol + one.filling, size: (dense ? 4 : 8) * (look.symbol.startsWith("triangle") ? 1.3 : 1), opacity: dense ? 0.6 : 1,
        line: { width: dense ? 0 : 1, color: one.filling ? color : variable("--paper") } },
    };
  });
  // Behind all marks, from the low limits to the high ones and back; that of one point is as wide as its mark.
  const bands = shown.filter((one) => one.band).map((one) => {
    const aside = one.x.length > 1 ? [1] : [1 / 1.08, 1.08];
    const xs = one.x.flatMap((at) => aside.map((by) => at * by));
    const wide = (limits) => limits.flatMap((limit) => aside.map(() => limit));
    return {
      type: "scatter", mode: "lines", hoverinfo: "skip", fill: "toself", opacity: 0.2, line: { width: 0 },
      fillcolor: colorOf(report.data.looks[one.look] ?? { color: variable("--muted") }),
      x: [...xs, ...xs.slice().reverse()], y: [...wide(one.low), ...wide(one.high).reverse()],
    };
  });
  const lines = guides.map((guide) => ({
    type: "scatter", mode: "lines", hoverinfo: "skip",
    line: { color: variable("--faint"), width: 1 },
    x: guide.y === null ? guide.xs : ends(x, shown), y: guide.y === null ? guide.ys : [guide.y, guide.y],
  }));
  return [[...bands, ...lines, ...traces], layoutWith({ xaxis: axisWith(x, { showgrid: x.kind === "time" }), yaxis: axisWith(y) })];
};

function ends(axis, shown) {
  if (axis.low !== null) return [axis.low, axis.high];
  const all = shown.flatMap((one) => one.x);
  return [all.reduce((a, b) => Math.min(a, b), Infinity), all.reduce((a, b) => Math.max(a, b), -Infinity)];
}

function draw(canvas) {
  if (canvas.closest("details:not([open])")) return; // without a size; drawn when it is opened
  canvas.dataset.drawn = "yes";
  if (canvas.closest("[hidden]")) return;
  const [traces, layout] = drawers[canvas.dataset.kind](canvas.id);
  canvas.points = traces.flatMap((trace, curveNumber) =>
    trace.hoverinfo === "skip" ? [] : (trace.text ?? []).map((text, pointNumber) => ({ curveNumber, pointNumber })));
  canvas.at = -1;
  // A printer asks for all at once: nothing may wait until a size is known.
  const size = document.documentElement.classList.contains("printing")
    ? { width: canvas.clientWidth, height: canvas.clientHeight } : {};
  Plotly.react(canvas, traces, { ...layout, ...size }, CONFIG);
}

function step(canvas, by) {
  if (!canvas.points?.length) return;
  canvas.at = (canvas.at + by + canvas.points.length) % canvas.points.length;
  const { curveNumber, pointNumber } = canvas.points[canvas.at];
  Plotly.Fx.hover(canvas, [{ curveNumber, pointNumber }]);
  document.getElementById("told").textContent =
    canvas.data[curveNumber].text[pointNumber].replaceAll("<br>", ", ").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}
