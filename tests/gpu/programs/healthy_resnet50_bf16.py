# SPDX-License-Identifier: Apache-2.0
"""Five healthy training steps of models.py's resnet50_bf16."""
from healthy import train

train("resnet50_bf16")
