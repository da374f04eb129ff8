# SPDX-License-Identifier: Apache-2.0
"""The bridge behind ctypes: what the tests beside this file ask it."""

import ctypes
import os

LIBRARY = os.environ["NANWATCH_TEST_LIBRARY"]
_unlocked = ctypes.CDLL(LIBRARY)  # releases the GIL around a call, as torch does around an op
_locked = ctypes.PyDLL(LIBRARY)
_buffer = ctypes.create_string_buffer(1 << 20)


def _text(function, *arguments):
    function(*arguments, _buffer, ctypes.c_size_t(len(_buffer)))
    return _buffer.value.decode()


def install():
    assert _locked.probe_install_now() == 1


def install_in_background():
    _unlocked.probe_install_loop()


def stop_installing():
    _unlocked.probe_stop()


def installed():
    return _unlocked.probe_installed() == 1


def install_without_callbacks():
    assert _locked.probe_install_bare() == 1


def watch_ops():
    _unlocked.probe_watch_ops()


def depth():
    return _unlocked.probe_depth()


def layer():
    """root|path|type of the calling thread's layer, "-" outside."""
    return _text(_unlocked.probe_layer)


def said():
    """What the bridge handed out since the last time, as lines."""
    return _text(_unlocked.probe_said).splitlines()


def source_line():
    return _text(_unlocked.probe_source_line)


def last_optimizer():
    _unlocked.probe_last_optimizer.restype = ctypes.c_void_p
    return _unlocked.probe_last_optimizer()


def name_of(tensor):
    """root name kind, by the tensor's TensorImpl."""
    return _text(_unlocked.probe_name_of_impl, ctypes.c_void_p(tensor._cdata))


def name_of_storage(tensor):
    return _text(_unlocked.probe_name_of_storage, ctypes.c_void_p(tensor.untyped_storage()._cdata))


def names():
    return _text(_unlocked.probe_names).splitlines()


class Ops:
    """with Ops() as ops: ...; then ops.lines: (op, root, path, type, depth, source line)."""

    def __enter__(self):
        self.lines = []
        _unlocked.probe_trace_begin()
        return self

    def __exit__(self, *_):
        self.lines = [
            tuple(line.split("|")) for line in _text(_unlocked.probe_trace_end).splitlines()
        ]

    def layer_of(self, op):
        return [line[1:4] for line in self.lines if line[0] == op]
