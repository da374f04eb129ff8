// SPDX-License-Identifier: Apache-2.0
// Shows the page: words and tables at once, pictures when these are on the screen. Renews itself while the job runs, where a server
// sends the page.
"use strict";

const RENEW_EVERY_MS = 2000;

function drawAfterPaint(then) {
  requestAnimationFrame(() => setTimeout(() => { redraw(); if (then) then(); }, 0));
}

async function renew(from, before) {
  if (!document.hidden) {
    try {
      const answer = await fetch(from, {cache: "no-store"});
      const text = answer.ok ? await answer.text() : before;
      // Whoever reads a table, or moves in a picture, keeps it.
      const reads = document.querySelector("details[open], main :focus") !== null;
      if (text !== before && !reads) {
        before = text;
        render(JSON.parse(text));
        redraw();
      }
      if (answer.ok && !JSON.parse(text).live) return;
    } catch (error) {
      say("the server cannot be reached");
    }
  }
  setTimeout(renew, RENEW_EVERY_MS, from, before);
}

(function start() {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  // It writes style attributes, which the policy of the page forbids; charts have a line of text of their own.
  Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);
  render(page);
  drawAfterPaint(() => document.documentElement.setAttribute("data-drawn", ""));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    requestAnimationFrame(redraw);
  });
  const from = document.body.dataset.renewFrom;
  if (from && page.live) setTimeout(renew, RENEW_EVERY_MS, from, "");
})();
