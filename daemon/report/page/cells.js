// SPDX-License-Identifier: Apache-2.0
// Pictures made of cells, on a canvas: headroom by layer and step, and what each rank did. A cell that matters has a sign as well as
// a color. The cell under the pointer, or the one that the arrow keys reached, is named below the picture.

function labelWidth(width) {
  return Math.min(260, Math.max(84, Math.round(width * 0.24)));
}

function middleCut(canvas, text, room) {
  if (canvas.measureText(text).width <= room) return text;
  let keep = text.length;
  while (keep > 3 && canvas.measureText("\u2026" + text.slice(text.length - keep)).width > room) keep = Math.floor(keep * 0.9);
  return "\u2026" + text.slice(text.length - keep);
}

function scaled(canvas, width, height) {
  const dots = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  const context = canvas.getContext("2d");
  context.scale(dots, dots);
  return context;
}

function drawSign(context, sign, x, y, width, height) {
  if (!sign || width < 1) return;
  context.strokeStyle = color("--cell-mark");
  context.lineWidth = 1;
  context.beginPath();
  if (sign === "cross" || sign === "slash") {
    context.moveTo(x + 1, y + height - 1);
    context.lineTo(x + width - 1, y + 1);
  }
  if (sign === "cross") {
    context.moveTo(x + 1, y + 1);
    context.lineTo(x + width - 1, y + height - 1);
  }
  context.stroke();
}

// A run of few steps has no wider cells: a single snapshot is a column, not a field.
const CELL_MAX = 48;

// Where the cells of a grid lie on a canvas as wide as what it is in.
function shapeOf(grid, canvas) {
  const width = canvas.parentNode ? canvas.parentNode.clientWidth : 300;
  const left = labelWidth(width), rowHeight = grid.rows.length > 40 ? 6 : 16;
  return {width, left, rowHeight, cell: Math.min(CELL_MAX, (width - left) / grid.steps.length), height: grid.rows.length * rowHeight + 20};
}

function drawRow(context, grid, y, {left, cell, rowHeight}, styles) {
  const row = grid.rows[y];
  let signed = -Infinity;  // a sign on every cell of a pixel would hide the color
  for (let x = 0; x < row.cells.length; ++x) {
    const character = row.cells[x];
    if (!styles.has(character)) styles.set(character, grid.styleOf(character));
    const style = styles.get(character);
    if (!style.color) continue;
    context.fillStyle = style.color;
    context.fillRect(left + x * cell, y * rowHeight, Math.max(1, cell - (cell > 6 ? 1 : 0)), rowHeight - 1);
    if (!style.sign || (x - signed) * cell < 12) continue;
    signed = x;
    drawSign(context, style.sign, left + x * cell, y * rowHeight, Math.max(rowHeight - 1, cell), rowHeight - 1);
  }
  if (rowHeight < 12 && y % 4 !== 0) return;
  context.fillStyle = color("--ink");
  context.fillText(middleCut(context, row.label, left - 8), 0, y * rowHeight + 12);
}

// 1, 2, 5, 10, 20, ...: the first that is this large.
function roundStep(least) {
  const power = Math.pow(10, Math.floor(Math.log10(Math.max(1, least))));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

// Labels at round steps; where no column has two of these, at what columns begin with.
function drawSteps(context, grid, {left, cell, width, height}) {
  const last = grid.steps[grid.steps.length - 1] + grid.span - 1;
  const distance = roundStep((last - grid.steps[0] + 1) * 80 / Math.max(1, width - left));
  const round = grid.steps.map((begin) => Math.ceil(begin / distance) * distance);
  const isIn = round.map((step, x) => step < grid.steps[x] + grid.span);
  const labels = isIn.filter(Boolean).length > 1 ? round.map((step, x) => (isIn[x] ? step : null)) : grid.steps;
  context.fillStyle = color("--soft");
  let free = 0;
  labels.forEach((step, x) => {
    if (step === null) return;
    const at = left + x * cell, text = grouped(step), wide = context.measureText(text).width;
    if (at < free || at + wide > width) return;
    context.fillText(text, at, height - 5);
    free = at + wide + 12;
  });
}

// `place`: the cell that the keys have chosen.
function drawGrid(canvas, grid, place) {
  const shape = shapeOf(grid, canvas);
  canvas.style.height = shape.height + "px";
  const context = scaled(canvas, shape.width, shape.height);
  context.font = "12px sans-serif";
  const styles = new Map();
  grid.rows.forEach((row, y) => drawRow(context, grid, y, shape, styles));
  drawSteps(context, grid, shape);
  if (!place.chosen) return;
  context.strokeStyle = color("--ink");
  context.lineWidth = 2;
  context.strokeRect(shape.left + place.column * shape.cell, place.row * shape.rowHeight, Math.max(shape.cell, 3), shape.rowHeight - 1);
}

// grid: {rows: [{label, cells}], steps: [where each column begins], span: steps a column, styleOf(character) -> {color, sign},
// describe(row, column) -> text, title}
function cellGrid(grid) {
  const canvas = el("canvas", {class: "grid", tabindex: 0, role: "img", "aria-label": grid.title + ". Arrow keys read cells; the table below has the figures."});
  const readout = el("p", {class: "readout"});
  const place = {row: 0, column: 0, chosen: false};
  const draw = () => drawGrid(canvas, grid, place);
  function choose(row, column, aloud) {
    place.row = Math.max(0, Math.min(grid.rows.length - 1, row));
    place.column = Math.max(0, Math.min(grid.steps.length - 1, column));
    readout.replaceChildren(foreign(grid.describe(place.row, place.column)));
    if (aloud) say(readout.textContent);
  }
  canvas.addEventListener("pointermove", (event) => {
    const {left, cell, rowHeight} = shapeOf(grid, canvas);
    const row = Math.floor(event.offsetY / rowHeight);
    const column = Math.floor((event.offsetX - left) / cell);
    if (row < grid.rows.length && event.offsetX >= 0 && column < grid.steps.length) choose(row, column, false);
  });
  canvas.addEventListener("keydown", (event) => {
    const by = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1e9], End: [0, 1e9]}[event.key];
    if (!by) return;
    event.preventDefault();
    place.chosen = true;
    choose(place.row + by[0], place.column + by[1], true);
    draw();
  });
  drawings.push(draw);
  return el("div", null, canvas, readout);
}

function legend(entries) {
  const samples = entries.map((entry) => ({entry, canvas: el("canvas", {"aria-hidden": "true"})}));
  drawings.push(() => {
    for (const {entry, canvas} of samples) {
      const context = scaled(canvas, 16, 16);
      const style = entry.style();
      if (style.color) {
        context.fillStyle = style.color;
        context.fillRect(0, 0, 16, 16);
      }
      drawSign(context, style.sign, 0, 0, 16, 16);
    }
  });
  return el("ul", {class: "legend"}, samples.map(({entry, canvas}) => el("li", null, canvas, entry.text)));
}

// Bands of headroom, each up to this many times.
const HEADROOM = [[1, "none: it overflows"], [2, "less than 2 times"], [4, "2 to 4"], [8, "4 to 8"], [32, "8 to 32"], [256, "32 to 256"], [65536, "256 to 65,536"], [Infinity, "more"]];

function headroomOf(character) {
  const level = character.charCodeAt(0) - 48;
  return level < 0 ? null : level === 0 ? 1 : Math.pow(2, (level - 0.5) / 2);
}

function heatStyle(character) {
  const headroom = headroomOf(character);
  if (headroom === null) return {color: null, sign: null};
  const band = HEADROOM.findIndex(([most]) => headroom <= most);
  return {color: color("--heat-" + band), sign: band === 0 ? "cross" : null};
}

function heatSection(heat) {
  if (heat === null) return null;
  const describe = (row, column) => {
    const headroom = headroomOf(heat.rows[row].cells[column]);
    return `${heat.rows[row].label}, step ${grouped(heat.steps[column])}: `
      + (headroom === null ? "not recorded" : headroom <= 1 ? "no headroom" : `about ${brief(Number(headroom.toPrecision(2)))} times below the largest number of its type`);
  };
  for (const row of heat.rows) row.label = row.layer || "the whole model";
  const styles = HEADROOM.map(([, text], band) => ({text, style: () => ({color: color("--heat-" + band), sign: band === 0 ? "cross" : null})}));
  const ample = (headroom) => headroom === null || headroom > HEADROOM[HEADROOM.length - 2][0];
  const far = heat.rows.every((row) => [...row.cells].map(headroomOf).every(ample));
  const rows = heat.rows.map((row) => [row.label, row.least, row.least_step, row.newest]);
  return section("heat", "Headroom by layer and step",
    el("p", {class: "note"}, "How many times larger a layer's largest result could be before it overflows its type. Blank: nothing was recorded there."
      + (far ? " No layer came near it." : "")
      + (heat.rows_left_out ? ` ${grouped(heat.rows_left_out)} layers with more headroom are left out.` : "")),
    legend(styles), cellGrid({rows: heat.rows, steps: heat.steps, span: heat.steps_per_column, styleOf: heatStyle, describe, title: "Headroom by layer and step"}),
    tableBelow("Headroom as a table", () => table("Headroom by layer", [{title: "Layer"}, {title: "Least headroom", number: true}, {title: "At step", number: true, show: stepText}, {title: "Newest", number: true}], rows)));
}

const STRIP = {w: ["--cell-w", null, "watched, all finite"], i: ["--cell-i", null, "not watched"], s: ["--cell-s", "slash", "a GradScaler skipped the update"],
               h: ["--cell-h", null, "a non-finite value that did no harm, such as a mask"],
               b: ["--cell-b", "cross", "loss, gradients or parameters not finite"], ".": [null, null, "nothing recorded"]};

function stripStyle(character) {
  const [name, sign] = STRIP[character] || [null, null];
  return {color: name ? color(name) : null, sign};
}

function stripSection(strip) {
  if (strip === null) return null;
  const steps = Array.from({length: strip.rows[0].cells.length}, (_, i) => strip.first_step + i * strip.steps_per_column);
  for (const row of strip.rows) row.label = `rank ${row.rank}`;
  const describe = (row, column) => `rank ${strip.rows[row].rank}, step ${grouped(steps[column])}`
    + (strip.steps_per_column > 1 ? ` to ${grouped(steps[column] + strip.steps_per_column - 1)}` : "") + `: ${STRIP[strip.rows[row].cells[column]][2]}`;
  const rows = strip.rows.map((row) => [row.rank, row.run, row.steps, row.first_bad < 0 ? null : row.first_bad]);
  return section("strip", "Ranks by step",
    strip.rows_left_out ? el("p", {class: "note"}, `${grouped(strip.rows_left_out)} processes are left out.`) : null,
    legend(Object.keys(STRIP).map((key) => ({text: STRIP[key][2], style: () => stripStyle(key)}))),
    cellGrid({rows: strip.rows, steps, span: strip.steps_per_column, styleOf: stripStyle, describe, title: "What each rank did, by step"}),
    tableBelow("Ranks as a table", () => table("Ranks", [{title: "Rank", number: true}, {title: "Run"}, {title: "Steps recorded", number: true}, {title: "First bad step", number: true}], rows)));
}
