# SPDX-License-Identifier: Apache-2.0
"""pages_test.py PROGRAM [FOLDER]: the pages that PROGRAM writes, in Chromium; their pictures stay in FOLDER where one is named.

One browser opens all of them. What it says in its console, or reports against the security policy of a page, fails the test.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import browser

PROGRAM = sys.argv[1]
SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
PAGE_BYTES_MAX = 400 * 1024  # without its data
DATA = re.compile(r'<script type="application/json" id="page-data">(.*?)</script>', re.DOTALL)


@unittest.skipUnless(browser.CHROMIUM, "chromium is not installed: scripts/setup.sh --tests installs it")
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="nanwatch-pages-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([PROGRAM, cls.folder], check=True)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def show(self, name, shot=None, **shape):
        self.browser.shape(**shape)
        self.browser.open(f"file://{self.folder}/{name}.html")
        self.assertEqual(self.browser.complaints, [], "what the browser said")
        if SHOTS:
            self.browser.screenshot(SHOTS / f"{shot or name}.png")

    def sections(self):
        return self.browser.evaluate("[...document.querySelectorAll('main > section')].map(section => section.id)")

    def test_a_page_shows_what_is_known_in_the_order_of_importance(self):
        self.show("anomaly")
        self.assertEqual(self.sections(), ["verdict", "path", "origin", "incidents", "checkpoints", "series", "heat", "strip", "parameters", "coverage", "run"])
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('#checkpoints tbody tr')].map(row => row.children[1].textContent)"),
                         ["clean", "bad"])
        self.assertIn("NaN reached the parameters at step 117", self.browser.evaluate("document.querySelector('h1').textContent"))
        self.assertIn("model.py", self.browser.evaluate("document.querySelector('#origin .marked').parentNode.previousSibling.textContent"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('.plot canvas').length > 0 && charts.length"), 7)

    def test_it_is_dark_where_the_desktop_is(self):
        self.show("anomaly", "dark", scheme="dark")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 28)")

    def test_nothing_is_wider_than_a_telephone(self):
        for name in ("anomaly", "ranks", "hostile"):
            self.show(name, f"narrow-{name}", width=375, height=800)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 375, name)

    def test_ten_thousand_steps_are_drawn_within_a_second(self):
        self.show("long")
        self.assertLess(self.browser.first_paint_ms(), 1000)
        drawn = self.browser.evaluate("(() => { const began = performance.now(); redraw(); return performance.now() - began; })()")
        print(f"first paint {self.browser.first_paint_ms():.0f} ms; all pictures drawn again in {drawn:.0f} ms", flush=True)
        # A peak of one step is in the picture: its column keeps the largest value.
        series = self.browser.evaluate("JSON.parse(document.getElementById('page-data').textContent).series.map(one => [one.id, one.values, one.x.length])")
        self.assertEqual([[name, values] for name, values, _ in series][0], ["loss", 10000])
        self.assertTrue(all(columns <= 1000 for _, _, columns in series), series)

    def test_a_page_is_small(self):
        for path in self.folder.glob("*.html"):
            text = path.read_text()
            bare = DATA.sub("", text)
            plain = re.sub(r"<noscript>.*?</noscript>", "", bare, flags=re.DOTALL)
            self.assertLessEqual(len(plain.encode()), PAGE_BYTES_MAX, path.name)
            self.assertLessEqual(len(text.encode()), 1024 * 1024, path.name)

    def test_a_clean_run_says_so(self):
        self.show("clean")
        self.assertIn("CLEAN", self.browser.evaluate("document.querySelector('.verdict').textContent"))
        self.assertNotIn("origin", self.sections())

    def test_sixty_four_ranks_are_sixty_four_rows(self):
        self.show("ranks")
        self.browser.evaluate("document.querySelector('#strip details').open = true")
        self.browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('#strip tbody tr').length"), 64)

    def test_every_picture_has_a_name_and_its_table(self):
        self.show("anomaly")
        pictures = self.browser.evaluate("[...document.querySelectorAll('[role=img]')].map(one => [one.getAttribute('aria-label'), "
                                         "one.closest('section, .chart').querySelector('details') !== null])")
        self.assertEqual(len(pictures), 10)
        for name, has_table in pictures:
            self.assertTrue(name and has_table, name)
        # Each opens, with rows.
        rows = self.browser.evaluate("(async () => { const all = [...document.querySelectorAll('details')]; for (const one of all) one.open = true; "
                                     "await new Promise(done => setTimeout(done, 0)); return all.map(one => one.querySelectorAll('tbody tr').length); })()")
        self.assertTrue(all(rows), rows)
        self.assertEqual(self.browser.complaints, [])

    def test_a_table_is_sorted_by_its_heads(self):
        self.show("anomaly")
        column = ("[...document.querySelectorAll('#parameters table')][0].querySelectorAll('tbody tr td:nth-child(5)')")
        self.browser.evaluate("document.querySelectorAll('#parameters th button')[4].click()")
        values = self.browser.evaluate(f"[...{column}].map(cell => cell.textContent)")
        numbers = [float(value) for value in values if value != "-"]
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        self.assertEqual(values.index("-"), len(numbers), "what is not known comes last")
        self.assertEqual(self.browser.evaluate("document.querySelector('#parameters th:nth-child(5)').getAttribute('aria-sort')"), "descending")

    def test_keys_read_a_picture(self):
        self.show("anomaly")
        said = self.browser.evaluate("(() => { const canvas = document.querySelector('#heat canvas.grid'); canvas.focus(); "
                                     "canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'})); return document.getElementById('said').textContent; })()")
        self.assertRegex(said, r"encoder\.layers\.0\.linear1, step 0: about .* times below the largest number of its type")

    def test_names_of_the_job_are_text_and_nothing_else(self):
        self.show("hostile")
        self.assertIsNone(self.browser.evaluate("window.broken || null"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img, iframe, object').length"), 0)
        # Its elements are those of the same page with harmless names.
        text = (self.folder / "hostile.html").read_text()
        self.assertEqual(text.count("<script"), (self.folder / "anomaly.html").read_text().count("<script"))
        self.assertNotIn("<img", text)
        for mark in ("\u202e", "\u2066", "\u2028", "\x01"):
            self.assertNotIn(mark, text, repr(mark))
        page = json.loads(DATA.search(text)[1])
        self.assertTrue(page["program"].startswith("</script><img src=x onerror="), page["program"])
        self.assertIn("</script><img src=x", self.browser.evaluate("document.getElementById('about').textContent"))

    def test_the_policy_stops_what_is_not_the_pages_own(self):
        self.show("anomaly")
        self.browser.evaluate("(() => { const script = document.createElement('script'); script.textContent = 'window.broken = 1'; document.body.append(script); })()")
        self.assertIsNone(self.browser.evaluate("window.broken || null"))
        self.assertTrue(self.browser.evaluate("fetch('https://example.invalid/').then(() => false, () => true)"))
        self.browser.complaints.clear()

    def test_it_prints(self):
        self.show("anomaly", scheme="dark")
        with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
            self.browser.pdf(SHOTS / "anomaly.pdf" if SHOTS else file.name)
            if not SHOTS:
                self.assertTrue(pathlib.Path(file.name).read_bytes().startswith(b"%PDF-"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
