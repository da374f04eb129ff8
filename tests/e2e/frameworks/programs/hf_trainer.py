# SPDX-License-Identifier: Apache-2.0
"""hf_trainer.py [--fault]: a text classifier around a BERT of random weights in the Trainer of transformers.

Gradients are accumulated over two batches, clipped, evaluated between epochs and saved in between. With the fault, one text is
empty: its mask is all zero, and the mean over its tokens divides by that.
"""
import sys

import torch
from exactly import show
from torch import nn
from transformers import (BertConfig, BertModel, PreTrainedModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments,
                          set_seed)

TEXTS, LENGTH, WORDS = 24, 8, 40


class MaskedMean(nn.Module):
    def forward(self, states, mask):
        mask = mask.unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(1) / mask.sum(1)  # here


class TextClassifier(PreTrainedModel):
    config_class = BertConfig

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.pool = MaskedMean()
        self.head = nn.Linear(config.hidden_size, 3)
        self.post_init()

    def forward(self, input_ids, attention_mask, labels=None):
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        logits = self.head(self.pool(states, attention_mask))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Losses(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, arguments, state, control, logs=None, **rest):
        if "loss" in logs:
            self.losses.append(logs["loss"])


def texts(faulty):
    made = []
    for i in range(TEXTS):
        mask = torch.ones(LENGTH, dtype=torch.long)
        mask[3 + i % 5:] = 0
        if faulty and i == 13:
            mask[:] = 0
        made.append({"input_ids": torch.randint(WORDS, (LENGTH,)), "attention_mask": mask, "labels": torch.tensor(i % 3)})
    return made


def main():
    set_seed(3)
    config = BertConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                        max_position_embeddings=LENGTH)
    model = TextClassifier(config)
    seen = Losses()
    arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                                  learning_rate=1e-3, warmup_steps=2, max_grad_norm=1.0, logging_steps=1,
                                  logging_nan_inf_filter=False, eval_strategy="epoch", save_steps=4, use_cpu=True, seed=3,
                                  report_to=[], disable_tqdm=True)
    healthy = texts(False)
    trainer = Trainer(model, arguments, train_dataset=texts("--fault" in sys.argv), eval_dataset=healthy[:4], callbacks=[seen])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    show(seen.losses, model)


main()
