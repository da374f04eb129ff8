// SPDX-License-Identifier: Apache-2.0
// All runs, as the server lists them, every two seconds.
"use strict";

function runsTable(runs) {
  const link = (run) => el("a", {href: "/runs/" + encodeURIComponent(run)}, run.slice(0, 8));
  const alarm = (text) => el("span", {class: "severity critical"}, text);
  const anomalies = (count) => (count > 0 ? alarm(`\u2716 ${grouped(count)}`) : "0");
  const loss = (value) => (value === null || Number.isFinite(numberOf(value)) ? brief(value) : alarm(brief(value)));
  const state = (text) => text.replace(/^ended, (?=\d)/, "ended, status ");
  const rows = runs.map((run) => [run.id, run.program, run.job_anomalies, run.step < 0 ? null : run.step, run.loss, state(run.state), run.job, run.rank, run.host, run.level, run.findings, run.started_at]);
  return table("Runs, newest first", [{title: "Run", show: link}, {title: "Program"}, {title: "Anomalies", number: true, show: anomalies}, {title: "Step", number: true},
    {title: "Loss", number: true, show: loss}, {title: "State"}, {title: "Job"}, {title: "Rank", number: true}, {title: "Host"}, {title: "Level"}, {title: "Findings", number: true},
    {title: "Started (UTC)", show: (time) => el("span", {class: "moment"}, time.slice(0, 16).replace("T", " "))}], rows, {cards: true});
}

async function renewRuns(before) {
  if (!document.hidden || before === "") {
    try {
      const answer = await fetch("/api/v1/runs", {cache: "no-store"});
      const text = await answer.text();
      if (answer.ok && text !== before) {
        before = text;
        const {runs, about, database_error: trouble} = JSON.parse(text);
        if (about) document.getElementById("about").textContent = about;
        document.getElementById("runs").replaceChildren(runs.length ? runsTable(runs) : el("p", null, trouble || "No run is known yet: start one with 'nanwatch run -- python train.py'."),
          runs.length && trouble ? el("p", null, trouble) : "");
        document.documentElement.setAttribute("data-drawn", "");
      }
      document.getElementById("foot").textContent = answer.ok ? "" : "the server answered " + answer.status;
    } catch (error) {
      document.getElementById("foot").textContent = "the server cannot be reached";
    }
  }
  setTimeout(renewRuns, 2000, before);
}

renewRuns("");
