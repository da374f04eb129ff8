"""Source lines are read without the GIL in every CPython at hand; no torch is needed."""

import ctypes
import os
import sys
import threading
import unittest

locked = ctypes.PyDLL(os.environ["NANWATCH_TEST_LIBRARY"])
unlocked = ctypes.CDLL(os.environ["NANWATCH_TEST_LIBRARY"])  # releases the GIL, as torch does
unlocked.probe_optimizer.restype = ctypes.c_void_p
locked.probe_prove()


def source_line():
    buffer = ctypes.create_string_buffer(256)
    length = unlocked.probe_source_line(buffer, 256)
    assert length == len(buffer.value)
    return buffer.value.decode()


def here():
    return sys._getframe(1).f_lineno


def run(path, source):
    """Runs source as if it stood in the file `path`; the value of its `result`."""
    names = {"source_line": source_line, "optimizer": unlocked.probe_optimizer}
    exec(compile(source, path, "exec"), names)
    return names["result"]


THIS = os.path.basename(__file__)


class Frames(unittest.TestCase):
    # source_line itself is the innermost frame: it moves to the standard library, which is
    # nobody's own code.
    @classmethod
    def setUpClass(cls):
        global source_line
        hidden = {}
        path = os.path.join(os.path.dirname(os.__file__), "hidden.py")
        exec(
            compile(
                "def make(u, c):\n def line():\n  b = c.create_string_buffer(256)\n  u.probe_source_line(b, 256)\n"
                "  return b.value.decode()\n return line\n",
                path,
                "exec",
            ),
            hidden,
        )
        source_line = hidden["make"](unlocked, ctypes)

    def test_the_layout_of_this_python_is_proven(self):
        self.assertEqual(locked.probe_prove(), 1)

    def test_the_line_is_that_of_the_call(self):
        got, line = source_line(), here()
        self.assertEqual(got, f"{THIS}:{line} in test_the_line_is_that_of_the_call")

    def test_a_call_over_several_lines_has_the_line_python_gives_it(self):
        got = [
            1,
            source_line(),
        ]
        self.assertEqual(got[1], f"{THIS}:{here() - 2} in {self._testMethodName}")

    def test_generators_lambdas_and_comprehensions_are_frames(self):
        self.assertEqual(next(source_line() for _ in [1]).split(" in ")[1], "<genexpr>")
        self.assertEqual((lambda: source_line())().split(" in ")[1], "<lambda>")
        self.assertRegex([source_line() for _ in [1]][0], rf"^{THIS}:{here()} in ")

    def test_standard_library_and_frozen_frames_are_passed_over(self):
        stdlib = os.path.join(os.path.dirname(os.__file__), "abc.py")
        source = "def f():\n  return source_line()\nresult = f"
        for path in (stdlib, "<frozen importlib._bootstrap>", "<eval_with_key>.0"):
            got, line = run(path, source)(), here()
            self.assertEqual(got, f"{THIS}:{line} in {self._testMethodName}")

    def test_installed_packages_are_somebody_s_own_code(self):
        path = os.path.join(os.path.dirname(os.__file__), "site-packages", "model.py")
        self.assertEqual(run(path, "\n\nresult = source_line()"), "model.py:3 in <module>")

    def test_names_of_any_script_come_as_utf8(self):
        for name in ("modèle", "模型", "𝔪"):
            got = run(f"/x/{name}.py", f"def {name}():\n return source_line()\nresult = {name}()")
            import unicodedata

            self.assertEqual(got, f"{name}.py:2 in {unicodedata.normalize('NFKC', name)}")

    def test_a_name_that_is_too_long_is_cut(self):
        self.assertLessEqual(len(run("/x/" + "a" * 3000 + ".py", "result = source_line()")), 255)

    def with_stacks(self):
        locked.probe_whole_stacks(1)
        self.addCleanup(locked.probe_whole_stacks, 0)

    def test_whole_stacks_are_the_users_frames_innermost_first(self):
        self.with_stacks()
        stdlib = os.path.join(os.path.dirname(os.__file__), "abc.py")
        through = run(stdlib, "def call(f):\n  return f()\nresult = call")

        def inner():
            return source_line()

        got, line = through(inner), here()
        lines = got.split(" < ")
        self.assertEqual(lines[:2], [f"{THIS}:{line - 2} in inner", f"{THIS}:{line} in {self._testMethodName}"])
        self.assertNotIn("abc.py", got)

    def test_whole_stacks_are_cut_between_two_lines_and_say_so(self):
        self.with_stacks()
        source = "def deep(n):\n  return source_line() if n == 0 else deep(n - 1)\nresult = deep(60)"
        for room in (1, 11, 64):
            lines = run("/x/" + "f" * room + ".py", source).split(" < ")
            self.assertEqual(lines[-1], "...")
            self.assertEqual(set(lines[:-1]), {"f" * room + ".py:2 in deep"})
            self.assertLessEqual(len(" < ".join(lines)), 255)

    def test_the_call_is_another_for_another_caller_only_while_whole_stacks_are_wanted(self):
        call = unlocked.probe_call

        def line():
            return call()

        def one():
            return line()

        def other():
            return line()

        self.assertEqual(one(), other())
        self.with_stacks()
        self.assertNotEqual(one(), other())
        first, second = [one() for _ in range(2)]
        self.assertEqual(first, second)

    def test_every_thread_sees_its_own_frames(self):
        seen = []

        def work():
            seen.append(source_line())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({line.split(" in ")[1] for line in seen}, {"work"})

    def test_deep_recursion_is_read_from_its_inner_end(self):
        def deep(n):
            return source_line() if n == 0 else deep(n - 1)

        self.assertRegex(deep(400), rf"^{THIS}:\d+ in deep$")

    def test_a_frame_being_traced_has_the_same_line(self):
        sys.settrace(lambda *_: None)
        try:
            got, line = source_line(), here()
        finally:
            sys.settrace(None)
        self.assertEqual(got, f"{THIS}:{line} in {self._testMethodName}")

    def test_the_optimizer_is_the_first_argument_of_torch_s_wrapper(self):
        source = (
            "def wrapper(*args, **kwargs):\n"
            "    self, *_ = args\n"
            "    def enter():\n"
            "        return optimizer()\n"
            "    return enter()\n"
            "result = wrapper"
        )
        thing = object()
        self.assertEqual(run("/x/torch/optim/optimizer.py", source)(thing, 1, k=2), id(thing))
        self.assertIsNone(
            run(
                "/x/torch/optim/optimizer.py",
                source.replace("*args, **kwargs", "args").replace("self, *_", "self"),
            )(thing)
        )
        self.assertIsNone(run("/x/other/optimizer.py", source)(thing))


if __name__ == "__main__":
    unittest.main()
