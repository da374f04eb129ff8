# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing, reentrant and not. The layer is the right one, and what is computed twice is told once."""
from training import training
from watched_program import WatchedProgramTest, main

FORWARD = {"kind": "op", "class": "produce", "phase": "forward"}

ENCODER = """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Norm(nn.Module):
    def forward(self, x):
        NORM


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8, bias=False), Norm()

    def forward(self, x):
        return self.norm(torch.relu(self.fc(x)) + x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Linear(6, 8, bias=False), nn.ModuleList([Layer() for _ in range(3)])
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        h = self.embed(x)
        CALL
        return self.out(h)
"""
PLAIN = "return x / x.abs().sum(-1, keepdim=True)"
EACH = "for layer in self.layers:\n            h = checkpoint(layer, h, use_reentrant={})"
ZERO_ROW = "if step == 3:\n    x[2] = 0"


def encoder(norm=PLAIN, call=EACH.format(False), before=ZERO_ROW, **more):
    return training(ENCODER.replace("NORM", norm).replace("CALL", call), model="Encoder()", before=before, **more)


class Checkpointing(WatchedProgramTest):
    def told_once(self, text, **origin):
        self.assert_anomaly(text, **origin)
        anomalies = [i for i in self.verdict_of(text)["incidents"] if i["severity"] != "info"]
        self.assertEqual(len(anomalies), 1, [i["origin"] for i in anomalies])

    def test_forward_fault_of_a_layer_that_is_not_reentrant(self):
        self.told_once(encoder(), op="aten::div", layer="layers.0.norm", step=3, **FORWARD)

    def test_forward_fault_of_a_reentrant_layer(self):
        self.told_once(encoder(call=EACH.format(True)), op="aten::div", layer="layers.0.norm", step=3, **FORWARD)

    def test_backward_fault_of_a_layer_that_is_not_reentrant(self):
        self.told_once(encoder("return x + torch.sqrt(x.square().sum(-1, keepdim=True))"), kind="op", op="aten::div",
                       phase="backward", autograd_node="SqrtBackward0", layer="layers.2.norm", step=3)

    def test_backward_fault_of_a_reentrant_layer(self):
        self.told_once(encoder("return x + torch.sqrt(x.square().sum(-1, keepdim=True))", EACH.format(True)), kind="op",
                       op="aten::div", phase="backward", autograd_node="SqrtBackward0", layer="layers.2.norm", step=3)

    def test_sequential_in_segments(self):
        self.told_once(encoder(call="h = checkpoint_sequential(nn.Sequential(*self.layers), 2, h, use_reentrant=False)"),
                       op="aten::div", layer="layers.0.norm", step=3, **FORWARD)

    def test_function_that_is_no_module(self):
        self.told_once(encoder(call="def body(h):\n            for layer in self.layers:\n                h = layer(h)\n      "
                                    "      return h\n"
                                    "        h = checkpoint(body, h, use_reentrant=False)"), op="aten::div",
                       layer="layers.0.norm", step=3, **FORWARD)

    def test_selective_checkpointing(self):
        self.told_once(encoder(call="""
        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
        policy = lambda ctx, op, *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))"""),
                       op="aten::div", layer="layers.0.norm", step=3, **FORWARD)

    def test_wrapper_of_torch(self):
        self.told_once(encoder(call="for layer in self.layers:\n            h = layer(h)", prepare="""
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
            model.layers[0] = checkpoint_wrapper(model.layers[0])"""), op="aten::div", layer="layers.0.norm", step=3, **FORWARD)

    def test_mask_inside_a_checkpointed_layer(self):
        self.assert_no_alarm(encoder("return x + x.masked_fill(torch.eye(4, 8).bool(), -math.inf).softmax(-1)", before="pass"))

    def test_healthy_model_that_is_not_reentrant(self):
        self.assert_no_alarm(encoder("return F.layer_norm(x, (8,))", before="pass"), "clean")

    def test_healthy_model_that_is_reentrant_and_drops_out(self):
        self.assert_no_alarm(encoder("return F.dropout(x, 0.2, self.training)", EACH.format(True), before="pass"), "clean")


if __name__ == "__main__":
    main()
