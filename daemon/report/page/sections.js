// SPDX-License-Identifier: Apache-2.0
// The sections of words and tables, and the page as a whole.

const SIGNS = {ANOMALY: "\u2716", EXPECTED: "\u2713", CLEAN: "\u2713", UNKNOWN: "?"};

function verdictSection(page) {
  const {word, sentence, where, why, evidence, remedy} = page.verdict;
  const rows = [["Where", where], ["Why", why], ["Seen", evidence], ["What to do", remedy === "" && word !== "ANOMALY" ? "nothing" : remedy],
    ...(page.remarks || []).map((text) => ["Of the fleet", text])].filter(([, text]) => text);
  return el("section", {id: "verdict", class: "verdict " + word, "aria-labelledby": "verdict-title", tabindex: -1},
    el("p", {class: "word"}, `${SIGNS[word] || "?"} ${word}`),
    el("h1", {id: "verdict-title"}, foreign(sentence.charAt(0).toUpperCase() + sentence.slice(1) + (page.live && word === "CLEAN" ? " so far." : "."))),
    el("dl", null, rows.flatMap(([label, text]) => [el("dt", null, label), el("dd", null, foreign(text))])));
}

function sourceBlock(source) {
  if (source === null) return null;
  return el("figure", {class: "figure"}, el("figcaption", {class: "note"}, foreign(source.path), ", as it is now"),
    el("div", {class: "source code", tabindex: 0, role: "region", "aria-label": "source code"}, source.lines.map((line, i) => {
      const number = source.first + i;
      return el("div", {class: number === source.marked ? "marked" : null}, el("span", {class: "number"}, number), foreign(line || " "));
    })));
}

function tensorTable(tensors) {
  if (tensors.length === 0) return null;
  const rows = tensors.map((t) => [t.side + (t.role ? " " + t.role : ""), t.dtype, t.shape, t.numel, t.nan, t.pos_inf, t.neg_inf, t.min, t.max, t.mean, t.first_bad]);
  return table("Inputs and outputs", [{title: "Tensor"}, {title: "Type"}, {title: "Shape"}, {title: "Elements", number: true}, {title: "NaN", number: true},
    {title: "+Inf", number: true}, {title: "\u2212Inf", number: true}, {title: "Smallest finite", number: true}, {title: "Largest finite", number: true},
    {title: "Mean", number: true}, {title: "First bad at"}], rows, {sorts: false, cards: true});
}

function opsTable(caption, ops) {
  if (ops.length === 0) return null;
  const rows = ops.map((op) => [op.op, op.layer, op.phase, op.dtype, (op.at_least ? "\u2265\u00a0" : "") + brief(op.largest), op.steps_before]);
  return table(caption, [{title: "Op"}, {title: "Layer"}, {title: "Phase", minor: true}, {title: "Type", minor: true},
    {title: "Largest magnitude", number: true, show: (text) => text}, {title: "Steps before", number: true}], rows, {sorts: false});
}

function originSection(origin) {
  if (origin === null) return null;
  const before = origin.losses_before.length
    ? el("p", null, "Losses of the steps before, oldest first: ", origin.losses_before.map(brief).join(", "),
        origin.norms_before.length ? ". Gradient norms: " + origin.norms_before.map(brief).join(", ") : "", ".") : null;
  return section("origin", "The origin", pairs(origin.rows), sourceBlock(origin.source), tensorTable(origin.tensors), before,
    opsTable("The ops before it on its thread", origin.before), opsTable("What this op made in earlier steps", origin.history));
}

function severity(word) {
  return el("span", {class: "severity " + word}, word);
}

function incidentsSection(page) {
  const parts = [];
  if (page.incidents.length > 1 || (page.incidents.length === 1 && page.verdict.word !== "ANOMALY")) {
    const rows = page.incidents.map((i) => [i.severity, i.step, i.rank, i.what, i.where, i.line, i.reach.map((one) => one.replaceAll("_", " ")).join(", "), i.findings, i.remedy]);
    parts.push(table("Incidents, most important first", [{title: "Severity", show: severity}, {title: "Step", number: true, show: stepText}, {title: "Rank", number: true},
      {title: "What"}, {title: "Where"}, {title: "Line"}, {title: "Reached"}, {title: "Findings", number: true}, {title: "What to do"}], rows, {cards: true}));
  }
  if (page.warnings.length) {
    const rows = page.warnings.map((w) => [w.severity, w.step, w.rank, w.id, w.evidence, w.cause, w.remedy, w.param]);
    parts.push(table("Warnings, by step", [{title: "Severity", show: severity}, {title: "Step", number: true, show: stepText}, {title: "Rank", number: true}, {title: "Warning"},
      {title: "Seen"}, {title: "Cause"}, {title: "What to do"}, {title: "Layer or parameter"}], rows, {cards: true}));
  }
  return parts.length ? section("incidents", page.warnings.length ? "Incidents and warnings" : "All incidents", parts) : null;
}

function checkpointsSection(checkpoints) {
  if (checkpoints.length === 0) return null;
  const rows = checkpoints.map((c) => [c.file || "(in memory)", c.state, c.step, c.rank, c.saved_at, c.tensors, c.bad, c.unread, c.first_bad]);
  return section("checkpoints", "Checkpoints", table("What the program saved, checked as it was saved", [{title: "File"}, {title: "State"},
    {title: "After steps", number: true, show: stepText}, {title: "Rank", number: true}, {title: "Saved at"}, {title: "Tensors", number: true},
    {title: "Bad", number: true}, {title: "Not read", number: true}, {title: "First bad"}], rows, {cards: true}));
}

function snapshotsSection(snapshots) {
  const parts = snapshots.flatMap((snapshot) => [
    el("h3", null, foreign(snapshot.optimizer || "optimizer"), `, step ${stepText(snapshot.step)}, rank ${snapshot.rank}`),
    snapshot.left_out ? el("p", {class: "note"}, `${grouped(snapshot.left_out)} parameters are not in this snapshot.`) : null,
    snapshot.parameters.length ? table("Parameters", [{title: "Parameter"}, {title: "Type"}, {title: "Elements", number: true}, {title: "Gradient"}, {title: "Gradient norm", number: true},
      {title: "Largest gradient", number: true}, {title: "Share of zeros", number: true}, {title: "Update / weight", number: true}], snapshot.parameters) : null,
    snapshot.layers.length ? table("Layers", [{title: "Layer"}, {title: "Type"}, {title: "Largest result", number: true}, {title: "Headroom", number: true}],
      snapshot.layers.map(([layer, type, largest, , headroom]) => [layer, type, largest, headroom])) : null]);
  return parts.length ? section("parameters", "Parameters and layers", parts) : null;
}

function coverageSection(coverage) {
  return section("coverage", "What was checked, and what was not", pairs(coverage.rows),
    coverage.unchecked.length
      ? table("Not checked", [{title: "Reason"}, {title: "Count", number: true}, {title: "What it means"}], coverage.unchecked.map((row) => [row.reason, row.count, row.meaning]))
      : el("p", null, coverage.tensors_checked > 0 ? "Every tensor was checked." : "No tensor was checked."),
    coverage.rule_problems.length ? el("ul", null, coverage.rule_problems.map((problem) => el("li", null, foreign(problem)))) : null);
}

function render(page) {
  drawings.length = 0;
  for (const graph of charts) graph.destroy();
  charts.length = 0;
  zoomButtons.length = 0;
  document.getElementById("about").replaceChildren(foreign(page.about), page.live ? ", running now" : "");
  const parts = [verdictSection(page), pathSection(page.path), originSection(page.origin), incidentsSection(page), checkpointsSection(page.checkpoints), seriesSection(page), heatSection(page.heat),
    stripSection(page.strip), snapshotsSection(page.snapshots), coverageSection(page.coverage), section("run", "The run", pairs(page.run))];
  document.getElementById("page").replaceChildren(...parts.filter(Boolean));
  document.getElementById("foot").replaceChildren(`nanwatch ${page.version}, made at ${page.made_at}. Charts by dygraphs (MIT license).`);
}
