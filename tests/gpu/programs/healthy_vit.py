# SPDX-License-Identifier: Apache-2.0
"""Five healthy training steps of models.py's vit."""
from healthy import train

train("vit")
