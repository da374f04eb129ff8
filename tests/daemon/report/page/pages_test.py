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
TEXTS = re.compile(r"<noscript>.*?</noscript>|<title>.*?</title>", re.DOTALL)
NONCE = re.compile(r"nonce[-=]\"?[0-9a-f]{32}")


def frame(text):
    """What a page has beside texts of the job."""
    return NONCE.sub("nonce", TEXTS.sub("", DATA.sub("", text)))


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

    def test_the_verdict_says_where_and_the_head_which_job(self):
        self.show("anomaly")
        where = self.browser.evaluate("document.querySelector('#verdict dd').textContent")
        self.assertEqual(where, "forward, encoder.layers.1.self_attn (MultiheadAttention), model.py:88 in forward")
        about = self.browser.evaluate("document.getElementById('about').textContent")
        self.assertEqual(about, "train.py on node7, run 00000000, started 2026-11-26 11:40:02 UTC")
        text = self.browser.evaluate("document.body.innerText")
        self.assertNotRegex(text, r"\dT\d\d:\d\d", "a time is written as people write it")
        self.assertIn("made at 2026-11-26 12:00:00 UTC", text)

    def test_what_did_no_harm_asks_for_nothing(self):
        self.show("anomaly")
        rows = self.browser.evaluate("[...document.querySelectorAll('#incidents table')][0].innerText")
        self.assertIn("nothing: it did no harm", rows)
        self.assertNotIn("breakpoint", rows)

    def test_a_long_path_shows_its_ends(self):
        self.show("anomaly")
        links = "[{title: 'origin'}, ...[1, 2, 3, 4, 5].map(i => ({title: 'op' + i, reach: ''})), {title: 'loss', reach: 'loss'}, {title: 'last', reach: ''}]"
        self.assertEqual(self.browser.evaluate(f"withoutMiddles({links}).map(link => link.title)"), ["origin", "op1", "3 ops between", "op5", "loss", "last"])
        self.assertEqual(self.browser.evaluate(f"withoutMiddles({links}.slice(3)).map(link => link.title)"), ["op3", "op4", "op5", "loss", "last"])

    def test_incidents_and_warnings_stand_in_every_picture_of_the_steps(self):
        self.show("anomaly")
        entries = self.browser.evaluate("[...document.querySelectorAll('#series .legend li')].map(one => one.textContent)")
        self.assertEqual([entry.split(":")[0] for entry in entries], ["I1, step 117", "W1, step 95"])
        titles = self.browser.evaluate("[...document.querySelectorAll('.chart h3')].map(one => one.firstChild.textContent)")
        self.assertEqual(titles[:4] + titles[5:6], ["Loss", "Gradient norm", "Loss scale", "Learning rate", "Overhead of nanwatch"])
        # At the step of the incident the color of incidents is in each canvas.
        drawn = self.browser.evaluate("""charts.map(graph => { const canvas = graph.hidden_, x = Math.round(graph.toDomXCoord(117)), y = Math.round(graph.getArea().y + graph.getArea().h / 3);
            const [r, g, b] = canvas.getContext('2d').getImageData(x, y, 1, 1).data; return r > g + 80 && r > b + 80; })""")
        self.assertEqual(drawn, [True] * 7)

    def test_the_way_back_from_a_zoom_is_there_while_it_is_needed(self):
        self.show("anomaly")
        buttons = "[...document.querySelectorAll('.chart button')].filter(one => one.textContent === 'Show all steps').map(one => one.hidden)"
        self.assertEqual(self.browser.evaluate(buttons), [True] * 7)
        self.browser.evaluate("zoomTogether([20, 60])")
        self.assertEqual(self.browser.evaluate(buttons), [False] * 7)
        self.assertEqual(self.browser.evaluate("charts.map(graph => graph.xAxisRange().join())"), ["20,60"] * 7)
        self.browser.evaluate("document.querySelector('.chart button').click()")
        self.assertEqual(self.browser.evaluate(buttons), [True] * 7)

    def test_no_table_is_wider_than_the_page(self):
        for name in ("anomaly", "ranks", "clean", "long"):
            self.show(name)
            wide = self.browser.evaluate("[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth).map(one => one.getAttribute('aria-label'))")
            self.assertEqual(wide, [], name)

    def test_texts_have_the_contrast_that_people_need(self):
        """WCAG's 4.5 between each text and what it stands on."""
        script = """(() => {
            const parse = (text) => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map((one) => one / 255).map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
                .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
            const under = (element) => { for (let one = element; one; one = one.parentElement) { const color = parse(getComputedStyle(one).backgroundColor);
                if (color.length < 4 || color[3] > 0) return color; } return [255, 255, 255]; };
            const found = [];
            for (const element of document.querySelectorAll('body *')) {
                if (![...element.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) || element instanceof SVGElement || !element.checkVisibility()) continue;
                const [a, b] = [light(parse(getComputedStyle(element).color)), light(under(element))].sort((x, y) => y - x);
                if ((a + 0.05) / (b + 0.05) < 4.5) found.push(element.textContent.slice(0, 40) + ' ' + ((a + 0.05) / (b + 0.05)).toFixed(2));
            }
            return found; })()"""
        for scheme in ("light", "dark"):
            for name in ("anomaly", "clean"):
                self.show(name, f"{name}-{scheme}", scheme=scheme)
                self.assertEqual(self.browser.evaluate(script), [], f"{name}, {scheme}")

    def test_pictures_need_no_eye_for_colors(self):
        """Headroom is lightness alone, in order; what a rank did differs in lightness or by a sign."""
        script = """(() => { const lightness = (name) => { const text = color(name); return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16))
            .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0); };
            return [[0, 1, 2, 3, 4, 5, 6, 7].map((band) => lightness('--heat-' + band)), Object.values(STRIP).filter(([name]) => name).map(([name, sign]) => [lightness(name), sign])]; })()"""
        for scheme, way in (("light", 1), ("dark", -1)):
            self.show("anomaly", scheme, scheme=scheme)
            heat, strip = self.browser.evaluate(script)
            self.assertEqual(heat, sorted(heat, reverse=way < 0), scheme)
            plain = sorted(light for light, sign in strip if sign is None)
            self.assertTrue(all(b - a > 20 for a, b in zip(plain, plain[1:])), (scheme, strip))
            signs = [sign for _, sign in strip if sign]
            self.assertEqual(len(signs), len(set(signs)))

    def test_only_what_does_not_fit_is_called_an_overflow(self):
        self.show("anomaly")
        self.assertEqual(self.browser.evaluate("['0', '1', '2', '3', '5'].map(one => HEADROOM[HEADROOM.findIndex(([most]) => headroomOf(one) <= most)][1])"),
                         ["none: it overflows", "less than 2 times", "less than 2 times", "2 to 4", "4 to 8"])

    def test_it_is_dark_where_the_desktop_is(self):
        self.show("anomaly", "dark", scheme="dark")
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 28)")

    def test_nothing_is_wider_than_a_telephone(self):
        for name in ("anomaly", "ranks", "hostile"):
            self.show(name, f"narrow-{name}", width=375, height=800)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 375, name)
            # What to do is read without moving a table to the side.
            wide = self.browser.evaluate("[...document.querySelectorAll('#origin .scroll, #incidents .scroll, #checkpoints .scroll')].map(one => one.scrollWidth - one.clientWidth)")
            self.assertTrue(wide and not any(wide), (name, wide))

    def test_no_word_is_broken_on_a_telephone(self):
        self.show("anomaly", width=375, height=800)
        broken = """[...document.querySelectorAll('#origin table bdi')].flatMap(one => [...one.childNodes]).filter(node => node.nodeType === 3 && !/\\s/.test(node.data))
            .filter(node => { const range = document.createRange(); range.selectNodeContents(node); return range.getClientRects().length > 1; }).map(node => node.data)"""
        self.assertEqual(self.browser.evaluate(broken), [])

    def test_a_sign_stays_with_its_number(self):
        self.show("anomaly")
        lines = """(() => { const tensor = {side: 'output', role: '', dtype: 'float32', shape: '[8, 16]', numel: 128, nan: 16, pos_inf: 0, neg_inf: 0, min: 0.00011, max: 0.1441,
            mean: 0.0625, first_bad: '[3, 0]'}; const one = tensorTable([tensor]); document.getElementById('origin').append(one); const range = document.createRange();
            return [...one.querySelectorAll('th')].filter(head => /Inf/.test(head.textContent)).map(head => { range.selectNodeContents(head); return range.getClientRects().length; }); })()"""
        self.assertEqual(self.browser.evaluate(lines), [1, 1])

    def test_the_origin_says_on_which_other_ranks_it_was_the_same(self):
        for name, ranks in (("ranks", "0; the same on 7 others: 1, 2, 3, 4, 5, 6, 7"), ("anomaly", "0")):
            self.show(name)
            rows = "Object.fromEntries([...document.querySelectorAll('#origin > dl > dt')].map(one => [one.textContent, one.nextSibling.textContent]))"
            self.assertEqual(self.browser.evaluate(rows)["Rank"], ranks)

    def test_what_was_reached_is_named_as_people_name_it(self):
        self.show("anomaly")
        reached = "incidentsSection({verdict: {word: 'CLEAN'}, warnings: [], incidents: [{step: 0, rank: 0, findings: 1, reach: ['loss', 'optimizer_state']}]}).textContent"
        self.assertIn("loss, optimizer state", self.browser.evaluate(reached))

    def test_a_name_is_broken_where_it_is_long_and_nothing_else_is(self):
        self.show("anomaly")
        cell = "table('', [{title: ''}], [['aten::masked_fill_, a constant, in train.py:25']]).querySelector('td bdi').innerHTML"
        self.assertEqual(self.browser.evaluate(cell), "aten::<wbr>masked_<wbr>fill_, a constant, in train.py:25")

    def test_numbers_are_written_as_people_write_them(self):
        self.show("anomaly")
        for number, text in (("0.00007812", "0.00007812"), ("2.5", "2.5"), ("1032.41", "1,032"), ("-11300.2", "-11,300"), ("65536", "65,536"), ("4.2e12", "4.2e+12"),
                             ("'Infinity'", "Inf"), ("null", "-")):
            self.assertEqual(self.browser.evaluate(f"brief({number})"), text)

    def test_few_snapshots_are_narrow_and_ample_headroom_is_said(self):
        self.show("anomaly")
        grid = "{rows: [{layer: 'a', cells: CELLS}], rows_left_out: 0, steps: [0], steps_per_column: 1}"
        self.assertLessEqual(self.browser.evaluate(f"shapeOf({grid.replace('CELLS', '0')}, document.querySelector('canvas.grid')).cell"), 48)
        for cells, said in (("X", True), ("-", True), ("9", False)):
            note = self.browser.evaluate(f"heatSection({grid.replace('CELLS', repr(cells))}).querySelector('.note').textContent")
            self.assertEqual("No layer came near it." in note, said, (cells, note))

    def test_ten_thousand_steps_are_drawn_within_a_second(self):
        self.show("long")
        self.assertLess(self.browser.first_paint_ms(), 1000)
        drawn = self.browser.evaluate("(() => { const began = performance.now(); redraw(); return performance.now() - began; })()")
        print(f"first paint {self.browser.first_paint_ms():.0f} ms; all pictures drawn again in {drawn:.0f} ms", flush=True)
        # A peak of one step is in the picture: its column keeps the largest value.
        series = self.browser.evaluate("JSON.parse(document.getElementById('page-data').textContent).series.map(one => [one.id, one.values, one.x.length])")
        self.assertEqual([[name, values] for name, values, _ in series][0], ["loss", 10000])
        self.assertTrue(all(columns <= 1000 for _, _, columns in series), series)
        heat = self.browser.evaluate("(({rows, steps}) => [rows.length, steps.length])(JSON.parse(document.getElementById('page-data').textContent).heat)")
        self.assertEqual(heat[0], 200, "layers")
        self.assertLess(drawn, 1000, "smooth")

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

    def test_a_job_that_still_runs_is_clean_so_far(self):
        self.show("clean")
        title = "verdictSection({...PAGE, live: LIVE}).querySelector('h1').textContent".replace("PAGE", "JSON.parse(document.getElementById('page-data').textContent)")
        self.assertEqual(self.browser.evaluate(title.replace("LIVE", "true")), "No non-finite value so far.")
        self.assertEqual(self.browser.evaluate(title.replace("LIVE", "false")), "No non-finite value.")

    def test_nothing_checked_is_not_everything_checked(self):
        self.show("clean")
        coverage = "coverageSection({rows: [], unchecked: [], tensors_checked: COUNT, rule_problems: []}).textContent"
        self.assertIn("No tensor was checked.", self.browser.evaluate(coverage.replace("COUNT", "0")))
        self.assertIn("Every tensor was checked.", self.browser.evaluate(coverage.replace("COUNT", "7")))

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
        said = self.browser.evaluate("(() => { const plot = document.querySelector('.chart .plot'); const press = (key) => plot.dispatchEvent(new KeyboardEvent('keydown', {key})); "
                                     "press('Home'); press('ArrowRight'); const first = document.getElementById('said').textContent; press('End'); "
                                     "return [first, document.getElementById('said').textContent]; })()")
        self.assertRegex(said[0], r"^step 1: \d")
        self.assertEqual(said[1], "step 129: not finite")
        # All that can be worked with is reached by the tabulator key, and has a name.
        nameless = self.browser.evaluate("[...document.querySelectorAll('button, input, summary, a, [tabindex=\"0\"]')].filter(one => one.checkVisibility() && "
                                         "!(one.getAttribute('aria-label') || one.textContent.trim() || one.closest('label')?.textContent.trim())).map(one => one.outerHTML.slice(0, 80))")
        self.assertEqual(nameless, [])
        self.assertEqual(self.browser.evaluate("[document.documentElement.lang, document.querySelectorAll('h1').length, document.querySelectorAll('main').length]"), ["en", 1, 1])

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
        # Outside its data, and the text for browsers without scripts, it is the same page byte for byte, and has the same elements.
        self.assertEqual(frame(text), frame((self.folder / "harmless.html").read_text()))
        outline = "[...document.querySelectorAll(':not(wbr)')].map(one => [one.tagName, ...one.getAttributeNames()].join(' '))"
        hostile = self.browser.evaluate(outline)
        self.show("harmless")
        self.assertEqual(hostile, self.browser.evaluate(outline))
        self.show("hostile")
        page = json.loads(DATA.search(text)[1])
        self.assertTrue(page["program"].startswith("</script><img src=x onerror="), page["program"])
        self.assertIn("</script><img src=x", self.browser.evaluate("document.getElementById('about').textContent"))

    def test_the_policy_stops_what_is_not_the_pages_own(self):
        self.show("anomaly")
        self.browser.evaluate("(() => { const script = document.createElement('script'); script.textContent = 'window.broken = 1'; document.body.append(script); })()")
        self.assertIsNone(self.browser.evaluate("window.broken || null"))
        self.assertTrue(self.browser.evaluate("fetch('https://example.invalid/').then(() => false, () => true)"))
        # So what a page violates is reported, and no report means that there is none.
        said = " ".join(self.browser.complaints)
        self.assertIn("script-src", said)
        self.assertIn("connect-src", said)
        self.browser.complaints.clear()

    def test_it_prints(self):
        self.show("anomaly", "print", scheme="dark", media="print", width=718)
        self.assertEqual(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", "dark on the screen, light on paper")
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('button, input')].filter(one => one.checkVisibility() && !one.closest('th')).length"), 0)
        self.assertEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 718, "A4 has all columns of all tables")
        self.show("anomaly", scheme="dark")
        with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
            self.browser.pdf(SHOTS / "anomaly.pdf" if SHOTS else file.name)
            if not SHOTS:
                self.assertTrue(pathlib.Path(file.name).read_bytes().startswith(b"%PDF-"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
