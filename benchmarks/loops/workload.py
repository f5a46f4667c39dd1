"""The model, the data and the loss that a loop trains: those of `job.WORKLOAD`."""

from importlib import import_module
from typing import Any

import job

_module: Any = import_module(job.WORKLOAD)

build_model = _module.build_model
build_datasets = _module.build_datasets
loss_fn = _module.loss_fn
