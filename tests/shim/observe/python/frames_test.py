# SPDX-License-Identifier: Apache-2.0
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


FETCH = """
class Fetcher:
    def __init__(self, dataset, batched, collate):
        self.dataset, self.batched, self.collate = dataset, batched, collate
    def fetch(self, possibly_batched_index):
        if self.batched:
            if hasattr(self.dataset, "__getitems__"):
                data = self.dataset.__getitems__(possibly_batched_index)
            else:
                data = [self.dataset[idx] for idx in possibly_batched_index]
        else:
            data = self.dataset[possibly_batched_index]
        return self.collate(data)
result = Fetcher
"""
SUBSET = """
class Subset:
    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices
    def __getitems__(self, indices):
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__([self.indices[idx] for idx in indices])
        else:
            return [self.dataset[self.indices[idx]] for idx in indices]
result = Subset
"""
STACK = """
class Stack:
    def __init__(self, *datasets):
        self.datasets = datasets
    def __getitems__(self, indices):
        list_batch = [[] for _ in indices]
        for dataset in self.datasets:
            if hasattr(dataset, "fetch_all"):
                dataset.fetch_all(indices)
            else:
                for idx, d_sample in zip(indices, list_batch):
                    d_sample.append(dataset[idx])
result = Stack
"""


COLLATE = """
def collate_tensor_fn(batch):
    buffer = c.create_string_buffer(512)
    u.probe_samples(buffer, c.c_size_t(512), c.c_size_t(rows), c.c_uint64(bad_rows))
    return buffer.value.decode()
def default_collate(batch):
    return {key: collate_tensor_fn([each[key] for each in batch]) for key in ("x",)}["x"]
result = default_collate
"""
ARRAYS = """
def collate_numpy_array_fn(batch):
    buffers = [c.create_string_buffer(512) for _ in batch]
    left = iter(buffers)
    [probe(next(left), size, none, bad) for b in batch]
    return [buffer.value.decode() for buffer in buffers]
result = collate_numpy_array_fn
"""


def samples(rows=0, bad_rows=0):
    buffer = ctypes.create_string_buffer(512)
    unlocked.probe_samples(buffer, ctypes.c_size_t(512), ctypes.c_size_t(rows), ctypes.c_uint64(bad_rows))
    return buffer.value.decode()


class Data:
    """What is known of the samples while each item is fetched."""

    def __init__(self):
        self.seen = []

    def __getitem__(self, index):
        self.seen.append(samples())
        return index


class LoaderSamples(unittest.TestCase):
    def fetch(self, asked, dataset=None, batched=True, collate=lambda data: samples(),
              path="/x/torch/utils/data/_utils/fetch.py"):
        """What was known while the items were fetched, and what was while they were collated."""
        data = Data()
        fetcher = run(path, FETCH)(data if dataset is None else dataset(data), batched, collate)
        known = fetcher.fetch(asked)
        return data.seen, known

    def dataset(self, source, *arguments):
        return lambda data: run("/x/torch/utils/data/dataset.py", source)(data, *arguments)

    def test_the_item_that_is_fetched_and_the_batch_while_it_is_collated(self):
        self.assertEqual(self.fetch([7, -3, 2**62]), (["1 of 3: 7\n", "1 of 3: -3\n", f"1 of 3: {2**62}\n"],
                                                      f"3 of batch 3: 7\n-3\n{2**62}\n"))

    def test_a_single_item(self):
        self.assertEqual(self.fetch(17, batched=False), (["1 of 0: 17\n"], "1 of 0: 17\n"))

    def test_a_list_is_a_batch_and_a_tuple_may_be_one(self):
        self.assertEqual(self.fetch([4, 5], batched=False)[0], ["2 of batch 2: 4\n5\n"])
        self.assertEqual(self.fetch((4, 5), batched=False), ([""], ""))
        self.assertEqual(self.fetch((4, 5)), (["1 of 2: 4\n", "1 of 2: 5\n"], ""))

    def test_keys(self):
        asked = ["cat", "it's", "a\nb\\", "k\u00e4se", "x" * 60, "y" * 39 + "\u00e4", ("u", 3), (5,)]
        literals = ["'cat'", r"'it\'s'", r"'a\nb\\'", "'k\u00e4se'", "'" + "x" * 40 + "'...", "'" + "y" * 39 + "'...", "('u', 3)",
                    "(5,)"]
        self.assertEqual(self.fetch(asked)[0], [f"1 of 8: {literal}\n" for literal in literals])

    def test_what_is_no_number_or_text_is_left_out(self):
        class Odd(int):
            def __repr__(self):
                raise AssertionError("Python code ran")

            __index__ = __str__ = __int__ = __repr__

        odd = [True, None, 1.0, Odd(3), 2**63, -(2**63) - 1, b"b", (), (1, (2, 3)), (1, None), tuple(range(5)), "", [1]]
        self.assertEqual(self.fetch(odd), ([""] * len(odd), ""))
        self.assertEqual(self.fetch([None, 5])[1], "1 of batch 2: 5\n")

    def test_a_long_batch_is_cut_where_the_room_ends(self):
        self.assertEqual(self.fetch(list(range(100)))[1], "16 of batch 100: " + "".join(f"{i}\n" for i in range(16)))
        known = self.fetch(["z" * 40] * 20)[1]
        self.assertEqual(known, "6 of batch 20: " + ("'" + "z" * 40 + "'\n") * 6)

    def test_a_subset_is_asked_for_the_loader_s_index(self):
        known, _ = self.fetch([0, 2], self.dataset(SUBSET, [40, 41, 42]))
        self.assertEqual(known, ["1 of 2: 0\n", "1 of 2: 2\n"])

    def test_a_subset_of_a_subset_leaves_the_batch(self):
        make = run("/x/torch/utils/data/dataset.py", SUBSET)
        known, _ = self.fetch([0, 2], lambda data: make(make(data, [50, 51, 52]), [2, 1, 0]))
        self.assertEqual(known, ["2 of batch 2: 0\n2\n"] * 2)

    def test_a_stack_leaves_the_batch_also_behind_a_loop(self):
        class All:
            def fetch_all(self, indices):
                seen.append(samples())

        seen = []
        known, _ = self.fetch([8, 9], self.dataset(STACK, All()))
        self.assertEqual(known + seen, ["2 of batch 2: 8\n9\n"] * 3)

    def test_a_loader_within_a_loader_is_not_known(self):
        known, _ = self.fetch([8, 9], collate=lambda data: self.fetch([1])[0])
        self.assertEqual(known, ["1 of 2: 8\n", "1 of 2: 9\n"])
        self.assertEqual(self.fetch([8, 9], collate=lambda data: self.fetch([1])[0])[1], [""])

    def collate(self, rows, bad_rows, path="/x/torch/utils/data/_utils/collate.py"):
        """A collate function of torch's that stacks to so many rows."""
        collate = {"u": unlocked, "c": ctypes, "rows": rows, "bad_rows": bad_rows}
        exec(compile(COLLATE, path, "exec"), collate)
        return collate["result"]

    def test_a_row_of_what_torch_collates_is_a_sample(self):
        def asked(collate, batch=(30, 31, 32, 33)):
            fetcher = run("/x/torch/utils/data/_utils/fetch.py", FETCH)({i: {"x": i} for i in batch}, True, collate)
            return fetcher.fetch(list(batch))

        whole = "4 of batch 4: 30\n31\n32\n33\n"
        self.assertEqual(asked(self.collate(4, 0b0100)), "1 of 4: 32\n")
        self.assertEqual(asked(self.collate(4, 0b1001)), "2 of 4: 30\n33\n")
        self.assertEqual(asked(self.collate(5, 0b0100)), whole)
        self.assertEqual(asked(self.collate(0, 0)), whole)
        self.assertEqual(asked(self.collate(4, 0b0100, "/x/own/collate.py")), whole)
        inner = self.collate(4, 0b0100)
        self.assertEqual(asked(lambda data: inner(data[::-1])), whole)

    def test_an_array_that_torch_collates_is_a_sample(self):
        names = {"c": ctypes, "probe": unlocked.probe_samples, "size": ctypes.c_size_t(512), "none": ctypes.c_size_t(0),
                 "bad": ctypes.c_uint64(0)}
        exec(compile(ARRAYS, "/x/torch/utils/data/_utils/collate.py", "exec"), names)
        one, two, both = object(), object(), object()

        def known(arrays, collate=names["result"]):
            fetcher = run("/x/torch/utils/data/_utils/fetch.py", FETCH)(dict(zip((30, 31, 32), arrays)), True, collate)
            return fetcher.fetch([30, 31, 32])

        whole = "3 of batch 3: 30\n31\n32\n"
        self.assertEqual(known([one, two, both]), ["1 of 3: 30\n", "1 of 3: 31\n", "1 of 3: 32\n"])
        self.assertEqual(known([both, two, both]), [whole, "1 of 3: 31\n", whole])
        self.assertEqual(known([one, two, both], lambda data: names["result"](data[:2])), [whole] * 2)

    def test_other_functions_are_no_loader_s(self):
        self.assertEqual(self.fetch([8], path="/x/torch/utils/data/fetch.py"), ([""], ""))
        self.assertEqual(samples(), "")

    def test_every_thread_has_its_own(self):
        seen = []
        threads = [threading.Thread(target=lambda i=i: seen.append(self.fetch([i])[0])) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(seen), [[f"1 of 1: {i}\n"] for i in range(8)])


if __name__ == "__main__":
    unittest.main()
