# SPDX-License-Identifier: Apache-2.0
"""dashboard_test.py DASHBOARD METRICS_CC RULES: what can be said of a Grafana dashboard without Grafana.

It has the fields that Grafana needs, its panels do not overlap, and every metric that it or an alert asks for is one that is written.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

DASHBOARD, SOURCE, RULES = (pathlib.Path(path).read_text() for path in sys.argv[1:4])
WRITTEN = re.compile(r'"(nanwatch_\w+)"')
ASKED = re.compile(r"\b(nanwatch_\w+)")


def written():
    """Families as the source names them, with the suffixes that their samples have."""
    families = set(WRITTEN.findall(SOURCE))
    return families | {name + suffix for name in families for suffix in ("_total", "_info")}


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(DASHBOARD)

    def test_it_has_what_grafana_needs(self):
        self.assertEqual({"uid", "title", "schemaVersion", "panels", "templating", "time"} - self.dashboard.keys(), set())
        identities = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(set(identities)), len(identities))
        for panel in self.dashboard["panels"]:
            self.assertEqual({"type", "title", "gridPos", "targets", "fieldConfig", "datasource"} - panel.keys(), set(), panel)
            self.assertTrue(all(target["expr"] and target["refId"] for target in panel["targets"]))

    def test_panels_do_not_overlap(self):
        cells = set()
        for panel in self.dashboard["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), cells, panel["title"])
                    cells.add((x, y))

    def test_every_metric_that_is_asked_for_is_written(self):
        expressions = [target["expr"] for panel in self.dashboard["panels"] for target in panel["targets"]]
        asked = set(ASKED.findall(" ".join(expressions))) | set(ASKED.findall(" ".join(re.findall(r"expr: (.*)", RULES))))
        self.assertGreater(len(asked), 8)
        self.assertEqual(asked - written(), set())

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_prometheus_can_read_every_expression(self):
        expressions = [target["expr"].replace("$job", ".*") for panel in self.dashboard["panels"] for target in panel["targets"]]
        rules = {"groups": [{"name": "dashboard", "rules": [{"record": f"panel:{i}", "expr": text} for i, text in enumerate(expressions)]}]}
        checked = subprocess.run(["promtool", "check", "rules", "/dev/stdin"], input=json.dumps(rules), capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
