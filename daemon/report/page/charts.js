// SPDX-License-Identifier: Apache-2.0
// Series by step, drawn by dygraphs. All of them show the same steps: a zoom in one is a zoom in all.

const charts = [];
const zoomButtons = [];  // back to all steps: there while fewer are shown
let everyStep = null;  // first and last step of all series

function hasBand(series) {
  return Array.isArray(series.low);
}

function pointsOf(series) {
  return series.x.map((x, i) => {
    const mean = series.mean[i];
    if (!hasBand(series)) return [x, mean];
    return [x, mean === null ? null : [series.low[i], mean, series.high[i]]];
  });
}

function extremes(series) {
  const low = (series.low || series.mean).filter((value) => value !== null);
  const high = (series.high || series.mean).filter((value) => value !== null);
  return [low.reduce((a, b) => Math.min(a, b), Infinity), high.reduce((a, b) => Math.max(a, b), -Infinity)];
}

// Behind the line: where incidents and warnings were, and where the value itself was not finite.
function drawMarks(canvas, area, graph, series, marks) {
  canvas.save();
  canvas.font = "12px sans-serif";
  let line = 0, free = -Infinity;  // labels that would meet stand below each other
  for (const mark of marks) {
    const x = Math.round(graph.toDomXCoord(mark.x)) + 0.5;
    if (x < area.x || x > area.x + area.w) continue;
    canvas.strokeStyle = canvas.fillStyle = color(mark.kind === "incident" ? "--bad" : "--warn");
    canvas.setLineDash(mark.kind === "incident" ? [] : [4, 4]);
    canvas.beginPath();
    canvas.moveTo(x, area.y);
    canvas.lineTo(x, area.y + area.h);
    canvas.stroke();
    line = x < free ? (line + 1) % 4 : 0;
    free = x + canvas.measureText(mark.label).width + 6;
    canvas.fillText(mark.label, x + 3, area.y + 11 + 13 * line);
  }
  canvas.setLineDash([]);
  canvas.fillStyle = color("--bad");
  for (const value of series.bad) {
    const x = graph.toDomXCoord(value);
    canvas.beginPath();
    canvas.moveTo(x - 5, area.y + area.h);
    canvas.lineTo(x + 5, area.y + area.h);
    canvas.lineTo(x, area.y + area.h - 9);
    canvas.fill();
  }
  canvas.restore();
}

function zoomTogether(window) {
  const shown = [Math.max(window[0], everyStep[0]), Math.min(window[1], everyStep[1])];
  for (const graph of charts) graph.updateOptions({dateWindow: shown});
  for (const button of zoomButtons) button.hidden = shown[0] === everyStep[0] && shown[1] === everyStep[1];
}

function readoutOf(series, i) {
  const step = `step ${grouped(series.x[i])}: `;
  if (series.mean[i] === null) return step + "not finite";
  if (!hasBand(series) || series.low[i] === series.high[i]) return step + brief(series.mean[i]);
  return step + `mean ${brief(series.mean[i])}, from ${brief(series.low[i])} to ${brief(series.high[i])}`;
}

function optionsOf(series, marks, log, readout) {
  return {
    labels: ["step", series.title], customBars: hasBand(series), legend: "never", logscale: log, animatedZooms: false,
    strokeWidth: 1.6, fillAlpha: 0.22, colors: [color("--curve")], gridLineColor: color("--grid"), axisLineColor: color("--line"),
    drawPoints: series.x.length < 40, pointSize: 2.5, highlightCircleSize: 4, rightGap: 12, connectSeparatedPoints: false,
    dateWindow: everyStep,
    axes: {x: {axisLabelFormatter: (x) => (Number.isInteger(x) ? grouped(x) : ""), pixelsPerLabel: 80, axisLabelWidth: 70},
           y: {axisLabelFormatter: brief, axisLabelWidth: 58, pixelsPerLabel: 34}},
    underlayCallback: (canvas, area, graph) => drawMarks(canvas, area, graph, series, marks),
    highlightCallback: (event, x, points, row) => { readout.textContent = readoutOf(series, row); },
    zoomCallback: (from, to) => zoomTogether([from, to]),
  };
}

// The chosen column moves by the arrow keys, and is read out.
function steer(plot, graph, series, readout) {
  let at = -1;
  plot.addEventListener("keydown", (event) => {
    const by = {ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity}[event.key];
    if (by === undefined) return;
    event.preventDefault();
    at = Math.max(0, Math.min(series.x.length - 1, at + by));
    graph.setSelection(at);
    readout.textContent = readoutOf(series, at);
    say(readout.textContent);
  });
}

function chart(series, marks) {
  const plot = el("div", {class: "plot", tabindex: 0, role: "img"});
  const readout = el("p", {class: "readout"});
  const [low, high] = extremes(series);
  plot.setAttribute("aria-label", `${series.title} by step: ${grouped(series.values)} values from ${brief(low)} to ${brief(high)}`
    + (series.bad.length ? `, not finite at step ${grouped(series.bad[0])}` : "") + ". Arrow keys read values; the table below has them.");
  const allSteps = el("button", {type: "button", class: "plain", hidden: true, onclick: () => zoomTogether(everyStep)}, "Show all steps");
  zoomButtons.push(allSteps);
  const state = {log: low > 0 && high / low > 1000, graph: null};
  const tools = el("p", {class: "tools"},
    low > 0 ? el("label", null, el("input", Object.assign({type: "checkbox", onchange: (event) => { state.log = event.target.checked; state.graph.updateOptions({logscale: state.log}); }},
      state.log ? {checked: true} : {})), " logarithmic") : null,
    allSteps);
  const draw = () => {
    if (state.graph === null) {
      state.graph = new Dygraph(plot, pointsOf(series), optionsOf(series, marks, state.log, readout));
      charts.push(state.graph);
      steer(plot, state.graph, series, readout);
      return;
    }
    state.graph.updateOptions({colors: [color("--curve")], gridLineColor: color("--grid"), axisLineColor: color("--line")}, true);
    state.graph.resize();
  };
  drawings.push(draw);
  const columns = [{title: "Step", number: true, show: grouped}, {title: hasBand(series) ? "Mean" : "Value", number: true}];
  if (hasBand(series)) columns.push({title: "Smallest", number: true}, {title: "Largest", number: true});
  const bad = new Set(series.bad);
  columns.push({title: "Not finite"});
  const rows = () => series.x.map((x, i) => [x, series.mean[i], ...(hasBand(series) ? [series.low[i], series.high[i]] : []), bad.has(x) ? "yes" : ""]);
  return el("div", {class: "chart"}, el("h3", null, series.title, series.unit ? el("span", {class: "note"}, ` (${series.unit})`) : null), tools, plot, readout,
    tableBelow(`${series.title} as a table`, () => table(`${series.title} by step`, columns, rows())));
}

function seriesSection(page) {
  if (page.series.length === 0) return null;
  const numbers = {incident: 0, warning: 0};
  const marks = page.marks.map((mark) => Object.assign({label: (mark.kind === "incident" ? "I" : "W") + String(++numbers[mark.kind])}, mark));
  const byStep = [...marks].sort((a, b) => a.x - b.x);
  const first = Math.min(...page.series.map((series) => series.x[0]));
  const last = Math.max(...page.series.map((series) => series.x[series.x.length - 1]));
  everyStep = [first, Math.max(last, first + 1)];
  const thinned = page.series.some(hasBand);
  const many = page.series[0].processes > 1;
  return section("series", "Training by step",
    thinned ? el("p", {class: "note"}, "The line is the mean of each column, the band reaches from its smallest to its largest value" + (many ? ", of all ranks." : "."),
      " \u25b2 below: a value that was not finite.") : page.series.some((series) => series.bad.length) ? el("p", {class: "note"}, "\u25b2 below: a value that was not finite.") : null,
    marks.length ? el("ul", {class: "legend"}, marks.slice(0, 12).map((mark) => el("li", null, `${mark.label}, step ${stepText(mark.step)}: `, foreign(mark.text)))) : null,
    page.series.map((series) => chart(series, byStep)));
}
