"use strict";
// Waterfalls from the ideal speed to what is measured, and ranks by windows.
const wrapped = (text, width = 20) => plain(text).split(" ").reduce((lines, word) => {
  if (lines.length && lines.at(-1).length + word.length < width) lines[lines.length - 1] += ` ${word}`;
  else lines.push(word);
  return lines;
}, []).join("<br>");

drawers.waterfall = (name) => {
  const loss = report.data.losses[name];
  let begin = 0;
  const bars = loss.parts.map((part) => {
    const bar = { ...part, begin };
    begin += part.center;
    return bar;
  });
  bars.push({ ...loss.total, label: "in total", begin: 0, low: null, high: null });
  const color = (bar) => (bar.largest ? variable("--accent") : variable("--loss"));
  const trace = {
    type: "bar", orientation: "h", base: bars.map((bar) => bar.begin), x: bars.map((bar) => bar.center),
    y: bars.map((_, index) => index), marker: { color: bars.map((bar, i) => (i === bars.length - 1 ? variable("--muted") : color(bar))) },
    text: bars.map((bar) => told(bar.text)), hovertemplate: "%{text}<extra></extra>", textposition: "none", width: 0.55,
    error_x: { type: "data", symmetric: false, thickness: 1.2, width: 3, color: variable("--ink"),
      array: bars.map((bar) => (bar.high === null ? 0 : bar.high - bar.center)),
      arrayminus: bars.map((bar) => (bar.low === null ? 0 : bar.center - bar.low)) },
  };
  const values = bars.map((bar, index) => ({
    xref: "paper", x: 1, xanchor: "left", y: index, text: plain(bar.value), showarrow: false, align: "left",
    font: { size: 12, color: bar.largest ? variable("--accent") : variable("--ink") },
  }));
  const room = 0.06 * (loss.to - loss.from);
  const x = { title: "lost of the ideal speed [%]", kind: "linear", places: [], low: loss.from - room, high: loss.to + room };
  const y = { title: "", kind: "linear", places: bars.map((_, index) => index), labels: bars.map(() => ""), low: bars.length - 0.5, high: -0.5 };
  return [[trace], layoutWith({
    margin: { l: 20, r: 10 + 6.6 * Math.max(16, ...bars.map((bar) => bar.value.length)), t: 4, b: 42 }, annotations: values,
    xaxis: axisWith(x, { zeroline: true, zerolinecolor: variable("--faint") }),
    yaxis: axisWith(y, { showgrid: false, ticktext: bars.map((bar) => `${wrapped(bar.label)} `) }),
  })];
};

drawers.heat = (name) => {
  const { values, hosts, ranks, late } = report.data.heatMaps[name];
  const spread = Math.max(0.02, ...values.flat().filter((value) => value !== null).map((value) => Math.abs(value - 1)));
  const label = (row) => plain(`${hosts[row]}, rank ${ranks[row]}`);
  const trace = {
    type: "heatmap", z: values, zmin: 1 - spread, zmax: 1 + spread, xgap: values[0].length > 60 ? 0 : 1, ygap: 1,
    // Blue is early, orange is late: told apart by colour-blind eyes, and by how dark they are in grey.
    colorscale: [[0, "#0072B2"], [0.5, variable("--panel")], [1, "#D55E00"]],
    text: values.map((row, at) => row.map((value, window) =>
      `${label(at)}, window ${window}<br>${value === null ? "not measured" : `${((value - 1) * 100).toFixed(1)} % against the median`}`)),
    hovertemplate: "%{text}<extra></extra>", colorbar: { tickformat: ".0%", thickness: 10, outlinewidth: 0 },
  };
  const borders = hosts.flatMap((host, rank) => (rank && host !== hosts[rank - 1] ? [{
    type: "line", xref: "paper", x0: 0, x1: 1, y0: rank - 0.5, y1: rank - 0.5, line: { color: variable("--ink"), width: 1 },
  }] : []));
  const few = hosts.length <= 24;
  const y = { title: few ? "" : "rank", kind: "linear", places: few ? hosts.map((_, rank) => rank) : [],
    labels: few ? hosts.map((host, row) => `${host}, ${ranks[row]}${late.includes(ranks[row]) ? " late" : ""}`) : [], low: hosts.length - 0.5, high: -0.5 };
  const x = { title: "window", kind: "linear", places: [], labels: [], low: null };
  return [[trace], layoutWith({ shapes: borders, xaxis: axisWith(x, { showgrid: false }), yaxis: axisWith(y, { showgrid: false }) })];
};
