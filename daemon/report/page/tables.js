// SPDX-License-Identifier: Apache-2.0
// Tables: each column can be sorted by a button in its head, and long ones are searched and shown in parts.

const ROWS_AT_ONCE = 100;

// columns: [{title, number: whether it is one, minor: left out on a telephone, show: value -> text or node}], rows: [[value, ...]].
// options: `sorts`; `cards`: on a telephone each row is a card, because its texts matter more than its columns.
function table(caption, columns, rows, options) {
  const {sorts: mayBeSorted = true, cards = false} = options || {};
  const sorts = mayBeSorted && rows.length > 1;
  // A card is no table to a browser; roles keep it one to a screen reader.
  const role = (name) => (cards ? {role: name} : {});
  const state = {rows, shown: ROWS_AT_ONCE, column: -1, descending: false, words: ""};
  const body = el("tbody");
  const note = el("p", {class: "note"});
  const more = el("button", {type: "button", class: "plain", onclick: () => { state.shown = Infinity; show(); }}, "Show all rows");

  // Where a long name may go on in the next line. A short one stays whole but for its namespace, and so does what follows a name.
  function broken(text) {
    const parts = String(text).split(/( +)/).flatMap((word) => word.split(word.length > 16 ? /(?<=[._/]|::)(?=[\p{L}\p{N}_])/u : /(?<=::)(?=[\p{L}\p{N}_])/u));
    return el("bdi", null, parts.flatMap((part, i) => (i > 0 && part.trim() && parts[i - 1].trim() ? [el("wbr"), part] : [part])));
  }
  function cell(column, value) {
    const text = column.show ? column.show(value) : column.number ? brief(value) : value;
    const shape = (column.number ? "number-cell" : "text-cell") + (text === "" ? " none" : "") + (column.minor ? " minor" : "");
    return el("td", {class: shape, "data-label": cards ? column.title : null, ...role("cell")}, text instanceof Node ? text : column.number ? text : broken(text));
  }
  function show() {
    const found = state.words ? state.rows.filter((row) => row.some((value) => String(value).toLowerCase().includes(state.words))) : state.rows;
    body.replaceChildren(...found.slice(0, state.shown).map((row) => el("tr", role("row"), columns.map((column, i) => cell(column, row[i])))));
    const hidden = Math.max(0, found.length - state.shown);
    more.hidden = hidden === 0;
    note.textContent = hidden > 0 ? `${grouped(hidden)} more rows` : "";
  }
  function sortBy(i, head) {
    state.descending = state.column === i ? !state.descending : Boolean(columns[i].number);
    state.column = i;
    state.rows = sorted(rows, i, columns[i].number, state.descending);
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    say(`sorted by ${columns[i].title}, ${state.descending ? "largest first" : "smallest first"}`);
    show();
  }
  const heads = columns.map((column, i) => {
    const shape = [column.number && "number-head", column.minor && "minor"].filter(Boolean).join(" ");
    const head = el("th", {scope: "col", class: shape || null, ...role("columnheader")});
    head.append(sorts ? el("button", {type: "button", onclick: () => sortBy(i, head)}, column.title) : column.title);
    return head;
  });
  show();
  const search = rows.length > 20
    ? el("p", {class: "tools"}, el("label", null, "Find ", el("input", {type: "search", oninput: (event) => { state.words = event.target.value.toLowerCase(); show(); }})))
    : null;
  return el("div", null, search, el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    el("table", {class: cards ? "cards" : null, ...role("table")}, el("caption", null, caption), el("thead", null, el("tr", role("row"), heads)), body)), note, more);
}

// What is not known comes last, whichever way it is sorted.
function sorted(rows, i, isNumber, descending) {
  const key = (row) => (isNumber ? numberOf(row[i]) : String(row[i]));
  const known = (value) => !(isNumber && Number.isNaN(value));
  return [...rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if (known(x) !== known(y)) return known(x) ? -1 : 1;
    const order = x < y ? -1 : x > y ? 1 : 0;
    return descending ? -order : order;
  });
}

// A table that is made when somebody opens it: most pictures are enough for most readers.
function tableBelow(title, build) {
  const details = el("details", null, el("summary", null, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(build());
  });
  return details;
}
