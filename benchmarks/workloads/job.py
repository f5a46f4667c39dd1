"""What every loop is asked to do. The program that starts a loop says it by the environment."""

import os
from pathlib import Path

STEPS = int(os.environ.get("BENCH_STEPS", "3"))  # optimizer steps of all epochs together
EPOCHS = int(os.environ.get("BENCH_EPOCHS", "1"))
BATCH_SIZE = int(os.environ.get("BENCH_BATCH_SIZE", "32"))  # on each process
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
SAMPLES = STEPS // EPOCHS * BATCH_SIZE * WORLD_SIZE  # so that an epoch uses each of them once

LR = 1e-3
LOG_EVERY = 50  # the default of a generated project
FUSED = os.environ.get("BENCH_FUSED") == "1"  # the optimizer's kernel, in loops that ask for it
BF16 = os.environ.get("BENCH_BF16") == "1"
LARGE = os.environ.get("BENCH_LARGE") == "1"  # models that give a GPU something to do

RANK = int(os.environ.get("RANK", "0"))
FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))  # for what is measured, and for logs
WORKLOAD = os.environ.get("BENCH_WORKLOAD", "linear")
