"""Five healthy training steps of models.py's resnet50_bf16."""
from healthy import train

train("resnet50_bf16")
