# SPDX-License-Identifier: Apache-2.0
"""Five healthy training steps of models.py's gpt2."""
from healthy import train

train("gpt2")
