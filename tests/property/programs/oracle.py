# SPDX-License-Identifier: Apache-2.0
"""Says what is right for a program: runs it without nanwatch under a TorchDispatchMode that sees every op's inputs and outputs, and
concludes from the flow of bad values alone.

  oracle.py PROGRAM.py     prints the answer as JSON

Shares no code, no data structure and no heuristic with the product: every op's every tensor is looked at, always; where a
bad value lies is known by storage and byte range, held so that no address is used twice; nothing is sampled or assumed. What it does
share is the meaning of the words, from the contract: what each class, phase and reach is, that a constant which was asked for and
-Inf that came in are masks, and that under a bad loss no gradient means anything.
"""
import json
import math
import sys
import traceback

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

PROGRAM = "program.py"  # the file name that programs are compiled with

# Memory that nobody wrote yet; what lies there is nobody's finding.
ALLOCATE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "empty_permuted"}
# Write their first argument without reading it.
OVERWRITE = {"fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "set_"}
# Arguments that are written although the schema does not say so.
WRITTEN_UNDECLARED = {"native_batch_norm": (3, 4), "_native_batch_norm_legit": (3, 4), "_batch_norm_with_update": (3, 4)}
# Read shapes, not values.
READS_NO_VALUES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_full", "new_ones", "rand_like", "randn_like", "empty_like",
                   "is_same_size", "sym_size", "sym_numel"}
# Take a bad value from place to place; a person looks for the op that computes with it.
MOVE = {"_to_copy", "_unsafe_view", "alias", "as_strided", "cat", "clone", "copy_", "detach", "expand", "index", "index_select",
        "lift_fresh", "lift_fresh_copy", "permute", "select", "slice", "split", "squeeze", "stack", "t", "transpose", "unsqueeze", "view",
        "unbind", "_reshape_alias"}
NAN, POS, NEG = 1, 2, 4
# A run is ruined by what lasts; what lasts more comes first.
# They compute with what comes in as with data: -Inf in it is no mask then.
DATA_OPS = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "convolution", "native_layer_norm", "native_group_norm",
            "native_batch_norm", "_native_batch_norm_legit", "var", "var_mean"}
RANK = {"parameter": 0, "optimizer_state": 1, "buffer": 2, "gradient": 3, "loss": 4}


def kinds_of(tensor):
    """Which of NaN, +Inf, -Inf the tensor holds."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0 or tensor.device.type != "cpu":
        return 0
    if tensor.layout is not torch.strided or tensor._is_zerotensor():  # the latter have no memory
        return 0
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    # A finite sum has only finite terms; one that is not says that a closer look is needed.
    if math.isfinite(values.sum().item()):
        return 0
    kinds = 0
    if torch.isnan(values).any():
        kinds |= NAN
    if torch.isposinf(values).any():
        kinds |= POS
    if torch.isneginf(values).any():
        kinds |= NEG
    return kinds


def extent(tensor):
    """(storage, first byte, byte after the last)"""
    size = tensor.element_size()
    begin = tensor.storage_offset() * size
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()) if n > 0)
    return tensor.untyped_storage(), begin, begin + (last + 1) * size


def source_line():
    """The program's own line that runs now."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM:
            return frame.f_lineno
        frame = frame.f_back
    return 0


class Value:
    """A bad value: the op call that wrote it, or what it came in by."""

    scaled = False  # made by a GradScaler, of a finite loss and its scale

    def __init__(self, number, cls, op, kinds, sources, where, kind="op", param=""):
        self.number = number
        self.cls = cls
        self.op = op
        self.kinds = kinds
        self.sources = sources
        self.phase, self.layer, self.node, self.line, self.step, self.root = where
        self.kind = kind
        self.param = param
        self.became_loss = False
        self.is_data = False
        self.constant = False  # written by an op on purpose, before anybody knew that it is a parameter or buffer
        self.consumers = []  # of what came in: the first op that wrote something bad from it, and the first that computed
        self._origins = None
        for source in sources:
            source.note_consumer(self)
        if op in DATA_OPS:
            self.mark_data()

    def note_consumer(self, value):
        if self.cls == "external" and len(self.consumers) < 2:
            if not self.consumers or value.op not in MOVE:
                self.consumers.append(value)
        if self.op in MOVE:
            for source in self.sources:
                source.note_consumer(value)

    def mark_data(self):
        behind, known = list(self.sources), set()
        while behind:
            value = behind.pop()
            if value not in known:
                known.add(value)
                value.is_data |= value.cls == "external" and value.kind not in ("parameter", "buffer")
                behind += value.sources

    def first_use(self):
        """What comes in begins to matter when something is computed from it."""
        return self.consumers[0] if self.consumers else self

    def is_mask(self):
        """Asked for, and harmless as long as it does not become the loss."""
        return not self.became_loss and self.is_constant()

    def is_constant(self):
        return self.cls == "scalar" or (self.cls == "external" and self.kinds == NEG and not self.is_data)

    def origins(self):
        """What is to blame, as far as something is; else the mask that the value is or came from."""
        if self._origins is None:
            self._origins = self._find_origins()
        return self._origins

    def _find_origins(self):
        if self.cls in ("produce", "scalar", "external") and self.root is None:
            return {self}
        # Where NaN alone came out, the NaN that went in tells why, whatever mask of -Inf went in beside it.
        sources = [*self.sources, *([self.root] if self.root is not None else [])]
        if self.kinds == NAN and any(source.kinds & NAN for source in sources):
            sources = [source for source in sources if source.kinds != NEG]
        behind = set()
        for source in sources:
            behind |= source.origins()
        wrong = {value for value in behind if not value.is_mask()}
        if wrong:
            return wrong
        if self.cls == "inf_to_nan":
            return {self}
        return behind or {self}

    def place(self):
        if self.kind in ("parameter", "buffer"):
            return (self.kind, self.param)
        return (self.kind, self.op, self.phase, self.layer, self.node, self.param or self.line)


class Signature:
    """What the schema of an op says of its arguments."""

    known = {}

    def __init__(self, func):
        schema = func._schema
        self.op = schema.name.partition("::")[2]
        self.is_view = self.op != "lift_fresh" and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.positions = {a.name: i for i, a in enumerate(schema.arguments)}
        self.writes, self.reads = [], []
        for i, argument in enumerate(schema.arguments):
            declared = argument.alias_info is not None and argument.alias_info.is_write
            overwrites = declared and (argument.is_out or (i == 0 and self.op in OVERWRITE))
            self.writes.append(declared or i in WRITTEN_UNDECLARED.get(self.op, ()))
            self.reads.append(not overwrites and self.op not in READS_NO_VALUES)

    @classmethod
    def of(cls, func):
        found = cls.known.get(func)
        if found is None:
            found = cls.known[func] = cls(func)
        return found

    def sort(self, args, kwargs):
        """(tensors read, tensors written, whether a scalar argument is not finite)"""
        read, written, scalar_bad = [], [], False
        given = list(enumerate(args))
        if kwargs:
            given += [(self.positions[name], value) for name, value in kwargs.items() if name in self.positions]
        for i, value in given:
            for leaf in (value,) if not isinstance(value, (list, tuple)) else value:
                if isinstance(leaf, torch.Tensor):
                    if self.writes[i]:
                        written.append(leaf)
                    if self.reads[i]:
                        read.append(leaf)
                elif type(leaf) is float and not math.isfinite(leaf):
                    scalar_bad = True
        return read, written, scalar_bad


class Decided(BaseException):
    """A parameter is bad: nothing that follows can come before what made it so."""


class Oracle(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.values = []
        self.lying = {}    # storage -> [(begin, end, value)]
        self.storages = {}  # keeps their addresses from being used twice
        self.unwritten = {}  # storages that were allocated and not written since: what lies there is nobody's
        self.events = []   # (reach, step, value, name)
        self.modules = []  # open module calls
        self.names = {}    # module -> path
        self.roots = []
        self.held = {"parameter": [], "buffer": []}  # of all modules: (name, tensor)
        self.last_sequence = 0
        self.boundaries = ([], [])  # autograd's sequence numbers at which the innermost module changed, and what it then was
        self.step = 0
        self.in_optimizer = 0
        self.optimizers = []
        self.namespace = {}  # of the program: its `optimizers`, of which the last closes a step
        self.in_scale = False  # a GradScaler multiplies a loss by its scale
        self.skips = False  # a GradScaler keeps the update from being made
        self.arguable = []  # events that may be told either way
        self.applied = []  # events of gradients that an update was made of
        self.skipped = 0   # updates that a GradScaler did not make
        self.decided = 0   # events that came before the last decision of a GradScaler
        self.passes = []   # open backward passes: (module calls open when it began, bad root)
        self.findings = 0
        self.kills = 0
        self.external_only = True

    # ---- where we are

    def layer(self):
        return self.modules[-1] if self.modules else ""

    def note_boundary(self):
        self.boundaries[0].append(torch.autograd._get_sequence_nr())
        self.boundaries[1].append(self.layer())

    def note_nodes_of_backward(self, layer):
        """In a pass with create_graph the nodes made since the op before belong to the layer of the node that runs."""
        numbers, layers = self.boundaries
        number = torch.autograd._get_sequence_nr()
        if number > self.last_sequence:
            numbers += [self.last_sequence, number]
            layers += [layer, ""]

    def layer_of_node(self, node):
        number = node._sequence_nr()
        numbers, layers = self.boundaries
        for i in range(len(numbers) - 1, -1, -1):
            if numbers[i] <= number:
                return layers[i]
        return ""

    def where(self):
        """(phase, layer, autograd node, line, step, bad root of the pass)"""
        line = source_line()
        node = torch._C._current_autograd_node()
        in_pass = torch._C._current_graph_task_id() != -1
        if in_pass:
            opened, root = self.passes[-1] if self.passes else (0, None)
            if len(self.modules) > opened:
                return "forward", self.layer(), "", line, self.step, None
            if node is None:
                return "backward", "", "", line, self.step, root
            return "backward", self.layer_of_node(node), node.name(), line, self.step, root
        if self.modules or torch.is_grad_enabled():
            return "forward", self.layer(), "", line, self.step, None
        if self.in_optimizer:
            return "optimizer", "", "", line, self.step, None
        return "other", "", "", line, self.step, None

    # ---- where bad values lie

    def found_at(self, tensor):
        storage, begin, end = extent(tensor)
        entries = self.lying.get(storage._cdata, ())
        return [value for low, high, value in entries if low < end and begin < high]

    def lay(self, tensor, value):
        """`tensor` was written: with `value`, or with good numbers if that is None."""
        if value is None and tensor.untyped_storage()._cdata not in self.lying:
            return
        storage, begin, end = extent(tensor)
        entries = self.lying.setdefault(storage._cdata, [])
        dense = tensor.numel() * tensor.element_size() == end - begin
        if dense:
            entries[:] = [e for e in entries if not (begin <= e[0] and e[1] <= end)]
        else:
            entries[:] = [e for e in entries if not (value is not None and e[0] == begin and e[1] == end)]
        if value is not None:
            entries.append((begin, end, value))
            self.storages[storage._cdata] = storage

    def held_by_module(self, tensor):
        """(kind, name) if it is a module's parameter or buffer."""
        address = tensor.untyped_storage()._cdata
        for kind, tensors in self.held.items():
            for name, held in tensors:
                if held.untyped_storage()._cdata == address:
                    return kind, name
        return None

    def parameter_of_state(self, tensor):
        """The name of the parameter whose optimizer state a tensor is; "" where it is none."""
        address = tensor.untyped_storage()._cdata
        for optimizer in self.optimizers:
            for parameter, state in optimizer.state.items():
                tensors = (each for each in state.values() if isinstance(each, torch.Tensor))
                if any(each.untyped_storage()._cdata == address for each in tensors):
                    held = self.held_by_module(parameter)
                    return held[1] if held else ""
        return ""

    def new_value(self, *arguments, **named):
        value = Value(len(self.values), *arguments, **named)
        self.values.append(value)
        return value

    def came_in(self, tensor, kinds, where):
        kind, name = self.held_by_module(tensor) or ("input_data", "")
        value = self.new_value("external", "", kinds, [], where[:5] + (None,), kind=kind, param=name)
        self.lay(tensor, value)
        return value

    def sources_of(self, tensor, kinds, where):
        return self.found_at(tensor) or [self.came_in(tensor, kinds, where)]

    # ---- ops

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        signature = Signature.of(func)
        op = signature.op
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1 and not self.modules:
            node = torch._C._current_autograd_node()
            self.note_nodes_of_backward(self.layer_of_node(node) if node is not None else "")
        self.last_sequence = torch.autograd._get_sequence_nr()
        if op in ALLOCATE:
            out = func(*args, **kwargs)
            for tensor in tree_leaves(out):
                if isinstance(tensor, torch.Tensor) and op != "set_":
                    self.lay(tensor, None)
                    storage = tensor.untyped_storage()
                    self.unwritten[storage._cdata] = storage
            return out
        if signature.is_view:
            return func(*args, **kwargs)  # the same memory
        read, written, scalar_bad = signature.sort(args, kwargs)
        before = [kinds_of(tensor) for tensor in read]
        if self.unwritten:
            before = [0 if kinds and tensor.untyped_storage()._cdata in self.unwritten else kinds
                      for tensor, kinds in zip(read, before)]
        where = None
        given = []  # what each tensor holds, and where that comes from
        for tensor, kinds in zip(read, before):
            where = where or (self.where() if kinds else None)
            given.append((kinds, self.sources_of(tensor, kinds, where) if kinds else []))
        try:
            out = func(*args, **kwargs)
        except Exception:
            # A list op writes one tensor after the other.
            self.judge(op, where, given, scalar_bad, written, func)
            raise
        if self.skips and op.startswith("_fused"):
            return out  # it was told to write nothing
        returned = [out] if isinstance(out, torch.Tensor) else [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.judge(op, where, given, scalar_bad, [*written, *returned], func)
        return out

    @staticmethod
    def together(given):
        """(kinds, sources) of several tensors."""
        together = 0
        values = []
        for kinds, sources in given:
            together |= kinds
            values += [value for value in sources if value not in values]
        return together, values

    def judge(self, op, where, given, scalar_bad, outputs, func):
        """What an op that was given tensors has left in `outputs`."""
        results, seen = [], set()
        for tensor in outputs:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                results.append(tensor)
        for tensor in results:
            if self.unwritten and tensor.layout is torch.strided:
                self.unwritten.pop(tensor.untyped_storage()._cdata, None)
        kinds_in, sources = self.together(given)
        after = [kinds_of(tensor) for tensor in results]
        kinds_out = 0
        for kinds in after:
            kinds_out |= kinds
        if kinds_out == 0:
            for tensor in results:
                if tensor.layout is torch.strided and self.lying:
                    self.lay(tensor, None)
            if kinds_in and op not in READS_NO_VALUES:
                self.kills += 1
            return
        where = where or self.where()
        if op in ("lift_fresh", "lift_fresh_copy") and sources:
            self.kills += 1  # seen, if nothing reads it
            return  # the value that came in is told already
        self.findings += 1
        self.write(op, where, given, scalar_bad, list(zip(results, after)), func)

    def write(self, op, where, given, scalar_bad, results, func):
        """The op's bad results: one value, or one for each tensor of a list op."""
        in_groups = op.startswith(("_foreach", "_fused"))
        groups = [[result] for result in results] if in_groups else [results]
        # The i-th result of `_foreach_add(a, b)` is of the i-th of `a` and of `b`.
        of_lists = op.startswith("_foreach") and len(given) % len(results) == 0
        for i, group in enumerate(groups):
            kinds_in, sources = self.together(given[i::len(results)] if of_lists else given)
            kinds = 0
            for _, each in group:
                kinds |= each
            if kinds == 0:
                for tensor, _ in group:
                    self.lay(tensor, None)
                continue
            if not kinds_in:
                # A number that a backward formula works with is its own result: nobody asked for it.
                cls = "scalar" if scalar_bad and where[0] != "backward" else "produce"
            elif kinds & NAN and not kinds_in & NAN:
                cls = "inf_to_nan"
            else:
                cls = "propagate"
            param = ""
            if where[0] in ("optimizer", "other"):
                held = self.held_by_module(group[0][0])
                param = held[1] if held else self.parameter_of_state(group[0][0])
            value = self.new_value(cls, op, kinds, sources, where, kind="optimizer" if where[0] == "optimizer" else "op", param=param)
            value.scaled = self.in_scale and cls == "produce"
            for tensor, each in group:
                self.lay(tensor, value if each else None)

    # ---- modules

    def before_module(self, module, _arguments):
        if not self.modules and module not in self.roots:
            self.roots.append(module)
            for path, child in module.named_modules():
                self.names.setdefault(child, path)
            for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                known = {id(tensor) for _, tensor in self.held[kind]}
                self.held[kind] += [(name, tensor) for name, tensor in tensors if id(tensor) not in known]
            self.look_at_held()
        self.modules.append(self.names.get(module, ""))
        self.note_boundary()

    def after_module(self, module, _arguments, _result):
        self.modules.pop()
        self.note_boundary()
        if not self.modules:
            self.look_at(("buffer", self.held["buffer"]))

    def look_at_held(self):
        """What a model brings with it is a bad parameter or buffer, also where an op wrote the constant."""
        with _disable_current_modes():
            for kind, tensors in self.held.items():
                for name, tensor in tensors:
                    kinds = kinds_of(tensor)
                    known = self.found_at(tensor) if kinds else []
                    if kinds and kinds != NEG and all(v.cls in ("scalar", "external") for o in known for v in o.origins()):
                        where = ("forward", "", "", 0, self.step, None)
                        held = self.new_value("external", "", kinds, [], where, kind=kind, param=name)
                        held.constant = bool(known)
                        self.lay(tensor, held)

    # ---- what was reached

    def reach(self, reach, tensor, name):
        kinds = kinds_of(tensor)
        if kinds:
            where = self.where()
            for value in self.sources_of(tensor, kinds, where):
                self.events.append((reach, self.step, value, name))

    def look_at(self, *groups):
        with _disable_current_modes():
            for reach, tensors in groups:
                for name, tensor in tensors:
                    if isinstance(tensor, torch.Tensor):
                        self.reach(reach, tensor, name)

    def backward(self, run, roots, arguments, named):
        bad_root = None
        with _disable_current_modes():
            for root in [roots] if isinstance(roots, torch.Tensor) else roots:
                kinds = kinds_of(root)
                if kinds and (root.requires_grad or root.grad_fn is not None):  # else the call raises, and it is no root
                    values = self.sources_of(root, kinds, self.where())
                    self.events += [("loss", self.step, value, "") for value in values]
                    origins = values[0].origins()
                    for origin in [o for o in origins if o.kinds != NEG] or origins:
                        origin.became_loss = True
                    bad_root = bad_root or values[0]
        self.passes.append((len(self.modules), bad_root))
        try:
            return run(roots, *arguments, **named)
        finally:
            self.passes.pop()
            self.look_at(("gradient", [(name, p.grad) for name, p in self.held["parameter"]]),
                         ("gradient", [("", p.grad) for p in self.unheld_parameters()]))

    def unheld_parameters(self):
        """Those that only an optimizer knows."""
        held = {id(tensor) for _, tensor in self.held["parameter"]}
        return [p for optimizer in self.optimizers for g in optimizer.param_groups for p in g["params"] if id(p) not in held]

    def before_step(self, optimizer, _arguments, _named):
        self.in_optimizer += 1
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        with _disable_current_modes():
            self.forget_mended(optimizer)

    def names_of(self, optimizer):
        """(name, parameter) of those that it updates."""
        updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [(name, p) for name, p in self.held["parameter"] if id(p) in updated]

    def forget_mended(self, optimizer):
        """A bad gradient that the program has made finite since (clip_grad_value_ of Inf, zero_grad) is not applied."""
        names = {name for name, p in self.names_of(optimizer) if p.grad is not None and not kinds_of(p.grad)}
        since = self.events[self.decided:]
        self.events[self.decided:] = [e for e in since if e[0] != "gradient" or e in self.applied or e[3] not in names]

    def after_step(self, optimizer, _arguments, _named):
        self.in_optimizer -= 1
        if self.skips:
            return  # fused optimizers are called all the same, and do nothing
        names = {name for name, _ in self.names_of(optimizer)}
        self.applied += [e for e in self.events if e[0] == "gradient" and e[3] in names and e not in self.applied]
        self.look_at_all()
        if optimizer is self.namespace.get("optimizers", [None])[-1]:
            self.step += 1
        if any(reach == "parameter" and any(not o.is_mask() for o in value.origins()) for reach, _, value, _ in self.events):
            raise Decided

    def scaler_scale(self, run, scaler, outputs):
        self.in_scale = True
        try:
            return run(scaler, outputs)
        finally:
            self.in_scale = False

    def scaler_step(self, run, scaler, optimizer, arguments, named):
        """A scaler skips an update when a gradient is bad. Where the loss was good before it was scaled, and scaling or backward
        alone made the bad value, that is what scalers are for, and no harm is done; what forward made would come again with any
        scale. A gradient that both have made bad may be told either way. A scale below 1 explains nothing."""
        with _disable_current_modes():
            grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            unscaled = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]  # before a clip mended it
            self.skips = any(kinds_of(grad) for grad in grads) or any(found.item() for found in unscaled.values())
            explains = scaler.get_scale() >= 1
        try:
            return run(scaler, optimizer, *arguments, **named)
        finally:
            if self.skips:
                self.skipped += 1
                since = [(event, explains and self.excused(event)) for event in self.events[self.decided:]]
                self.events[self.decided:] = [event for event, excused in since if not excused]
                if any(excused for _, excused in since):  # it was skipped for that alone
                    self.arguable += [event for event, _ in since if event[0] == "gradient"]
            self.decided = len(self.events)
            self.skips = False

    def excused(self, event):
        """Whether a skipped update takes an event away; `arguable` keeps those of which only some of the origins are so."""
        reach, _, value, _ = event
        origins = value.origins()
        if reach == "loss":
            return all(origin.scaled for origin in origins)
        if reach != "gradient":
            return False
        by_scaling = [origin.scaled or (origin.phase == "backward" and origin.root is None) for origin in origins]
        if any(by_scaling) and not all(by_scaling):
            self.arguable.append(event)
        return all(by_scaling)

    def look_at_all(self):
        self.look_at(*self.held.items(), ("parameter", [("", p) for p in self.unheld_parameters()]))
        for optimizer in self.optimizers:
            self.look_at(("optimizer_state", [(k, t) for state in optimizer.state.values() for k, t in state.items()]))

    # ---- the answer

    def answer(self):
        self.look_at_all()
        drafts, came_in_bad = {}, False
        for reach, step, value, name in self.events:
            origins = value.origins()
            wrong = [o for o in origins if not o.is_mask()]
            deliberate = not wrong and reach in ("parameter", "buffer")
            if deliberate:
                continue
            first = min(wrong or origins, key=lambda o: o.first_use().number)
            if reach == first.kind and first.param == name:
                came_in_bad = True  # that is where it began, not how far it got
                continue
            if reach == "optimizer_state" and first.cls == "external" and not first.consumers:
                came_in_bad = True  # written from outside of torch after the last update, and read by nothing
                continue
            draft = drafts.setdefault(first.place(), {"reach": set(), "origin": first})
            draft["reach"].add(reach)
            if first.first_use().number < draft["origin"].first_use().number:
                draft["origin"] = first
        if drafts and all(any(event is one for one in self.arguable) for event in self.events):
            return {"verdict": ["anomaly", "expected"]}
        if not drafts and came_in_bad:
            return {"verdict": ["anomaly", "expected", "clean"]}
        if not drafts:
            told = self.findings > 0
            accepted = ["expected"] if told else ["clean", "expected"] if self.kills else ["clean"]
            return {"verdict": accepted, "findings": self.findings, "kills": self.kills}
        order = sorted(drafts.values(), key=lambda d: (min(RANK[r] for r in d["reach"]), d["origin"].first_use().step,
                                                       d["origin"].first_use().number))
        return {"verdict": ["anomaly"], "origin": self.describe(order[0]["origin"]), "reach": sorted(order[0]["reach"]),
                "others": [self.describe(d["origin"]) for d in order[1:4]], "skips": self.skipped,
                "made": [self.describe(value) for value in self.values if value.origins() == {value}]}

    def describe(self, value):
        told = {"kind": value.kind, "class": value.cls, "op": [value.op], "phase": [value.phase], "layer": [value.layer],
                "step": value.first_use().step, "param": value.param, "line": value.line, "number": value.number,
                # A constant that is no mask, written into a parameter: the op that wrote it, or the parameter.
                "constant": value.constant or (value.cls == "scalar" and value.kinds != NEG)}
        if value.kind == "input_data":
            told["op"] = [c.op for c in value.consumers]
            told["layer"] = [c.layer for c in value.consumers]
            told["phase"] = [c.phase for c in value.consumers]
            # What is copied into a parameter may be called that.
            told["layer"] += [c.param.rpartition(".")[0] for c in value.consumers if c.param]
        if value.kind in ("parameter", "buffer"):
            told["layer"] = [value.param.rpartition(".")[0]]
        if value.kind == "optimizer":
            told["layer"] = ["", value.param.rpartition(".")[0]]
        return told


def run(text):
    """The answer for one program, and what it raised if it did."""
    oracle = Oracle()
    hooks = [torch.nn.modules.module.register_module_forward_pre_hook(oracle.before_module),
             torch.nn.modules.module.register_module_forward_hook(oracle.after_module, always_call=True),
             register_optimizer_step_pre_hook(oracle.before_step),
             register_optimizer_step_post_hook(oracle.after_step)]
    plain_backward, plain_grad = torch.autograd.backward, torch.autograd.grad
    plain_scaler_step, plain_scale = torch.amp.GradScaler.step, torch.amp.GradScaler.scale
    torch.amp.GradScaler.scale = lambda scaler, outputs: oracle.scaler_scale(plain_scale, scaler, outputs)
    torch.autograd.grad = lambda roots, *arguments, **named: oracle.backward(plain_grad, roots, arguments, named)
    torch.amp.GradScaler.step = lambda scaler, optimizer, *arguments, **named: oracle.scaler_step(
        plain_scaler_step, scaler, optimizer, arguments, named)
    torch.autograd.backward = lambda roots, *arguments, **named: oracle.backward(plain_backward, roots, arguments, named)
    raised = ""
    try:
        with oracle:
            oracle.namespace["__name__"] = "__main__"
            exec(compile(text, PROGRAM, "exec"), oracle.namespace)
    except Decided:
        pass
    except Exception:
        raised = traceback.format_exc(limit=-3)
    finally:
        torch.autograd.backward, torch.autograd.grad = plain_backward, plain_grad
        torch.amp.GradScaler.step, torch.amp.GradScaler.scale = plain_scaler_step, plain_scale
        for hook in hooks:
            hook.remove()
    answer = oracle.answer()
    answer["raised"] = raised
    return answer


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(run(open(sys.argv[1]).read()), indent=1))
