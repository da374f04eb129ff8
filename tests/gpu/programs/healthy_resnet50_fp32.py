"""Five healthy training steps of models.py's resnet50_fp32."""
from healthy import train

train("resnet50_fp32")
