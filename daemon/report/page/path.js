// SPDX-License-Identifier: Apache-2.0
// The path of the bad value as boxes and arrows, in rows from left to right; below each other where it is narrow.

const BOX = {height: 62, gap: 34, least: 300};

// `text` cut to `room` pixels of a font in which every character is `wide` pixels.
function fitted(text, room, wide) {
  const most = Math.max(3, Math.floor(room / wide));
  if (text.length <= most) return text;
  const head = Math.floor((most - 1) / 3);
  return text.slice(0, head) + "\u2026" + text.slice(text.length - (most - 1 - head));
}

// What the picture shows: of many ops in a row that merely carried the value on, the first, the last and how many lie between.
function withoutMiddles(links) {
  const shown = [];
  for (let i = 0; i < links.length; ) {
    let end = i;
    while (i > 0 && end < links.length && !links[end].reach) ++end;
    if (end - i > 3) shown.push(links[i], {title: `${end - i - 2} ops between`, under: "in the table below"}, links[end - 1]);
    else shown.push(...links.slice(i, Math.max(end, i + 1)));
    i = Math.max(end, i + 1);
  }
  return shown;
}

function boxOf(link, i, x, y, width) {
  const kind = i === 0 ? "origin" : link.reach ? "reached" : "carried";
  const sign = i === 0 ? "\u2716" : link.reach ? "\u25c6" : link.under ? "\u2026" : "\u25b8";
  const under = link.under || [link.layer || link.line, link.step >= 0 ? `step ${link.step}` : "", link.bad].filter(Boolean).join(", ");
  return svg("g", {class: kind, transform: `translate(${x + 1} ${y})`},
    svg("title", null, [i === 0 ? "origin" : "", link.title, under].filter(Boolean).join(": ")),
    svg("rect", {width, height: BOX.height, rx: 6}),
    svg("text", {class: "sign", x: 12, y: 25}, sign),
    svg("text", {x: 32, y: 25}, fitted(link.title, width - 42, 7.9)),
    svg("text", {class: "under", x: 12, y: 46}, fitted(under, width - 22, 7.3)));
}

function arrow(points) {
  const [fromX, fromY] = points[points.length - 2], [x, y] = points[points.length - 1];
  const down = y !== fromY;
  const head = down ? `${x - 5},${y - 8} ${x + 5},${y - 8} ${x},${y}` : `${x - 8},${y - 5} ${x - 8},${y + 5} ${x},${y}`;
  return [svg("polyline", {class: "edge", points: points.map((point) => point.join(",")).join(" ")}), svg("polygon", {class: "head", points: head})];
}

function drawPath(links, holder) {
  const width = Math.max(240, holder.clientWidth);
  const columns = Math.max(1, Math.min(links.length, Math.floor((width + BOX.gap) / (BOX.least + BOX.gap))));
  const box = (width - (columns - 1) * BOX.gap) / columns;
  const rows = Math.ceil(links.length / columns);
  const at = (i) => [(i % columns) * (box + BOX.gap), Math.floor(i / columns) * (BOX.height + BOX.gap) + 2];
  const parts = links.map((link, i) => boxOf(link, i, ...at(i), box - 2));
  for (let i = 1; i < links.length; ++i) {
    const [x, y] = at(i - 1), [toX, toY] = at(i);
    const middle = y + BOX.height + BOX.gap / 2;
    parts.push(...arrow(toY === y
      ? [[x + box - 2, y + BOX.height / 2], [toX - 1, y + BOX.height / 2]]
      : [[x + box / 2, y + BOX.height], [x + box / 2, middle], [toX + box / 2, middle], [toX + box / 2, toY]]));
  }
  const height = rows * (BOX.height + BOX.gap) - BOX.gap + 4;
  holder.replaceChildren(svg("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": "The path of the bad value: " + links.map((link) => link.title).join(", then ")}, parts));
}

function pathSection(links) {
  if (links.length === 0) return null;
  const holder = el("div", {class: "path"});
  const shown = withoutMiddles(links);
  drawings.push(() => drawPath(shown, holder));
  const rows = links.map((link, i) => [i + 1, link.title, link.op, link.layer, link.class, link.phase, link.reach || "activation", link.bad, link.step, link.rank, link.line]);
  return section("path", "From the origin to what it reached", holder,
    el("p", {class: "note"}, "\u2716 origin, \u25b8 carried on, \u25c6 reached the loss, a gradient, a parameter, a state or a buffer"),
    tableBelow("The path as a table", () => table("Path of the bad value", [{title: "Link", number: true}, {title: "What"}, {title: "Op"}, {title: "Layer"},
      {title: "Class"}, {title: "Phase"}, {title: "Reached"}, {title: "Value"}, {title: "Step", number: true, show: stepText}, {title: "Rank", number: true}, {title: "Line"}], rows)));
}
