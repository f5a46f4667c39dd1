"""Train the model of model.py on the data of data.py. Read this file first, from top to bottom.

./launch.sh --lr 1e-3        one process per GPU, or as many as you like on a CPU
python train.py --lr 1e-3    one process, no process group
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from tqdm import tqdm

import extras
from batches import plan_batches, windows
from config import Config, SettingsError, load_config
from data import build_datasets
from distributed import (
    World,
    cleanup_ddp,
    no_sync,
    reduce_loss,
    setup_ddp,
    share_buffers,
    sum_over_ranks,
    wrap_model,
)
from exchange import Exchange
from loaders import (
    Batch,
    ShardBatchSampler,
    build_train_loader,
    build_validation_loader,
    to_device,
)
from meter import Meter, StepProfiler
from model import build_model, compute_metrics, loss_fn, update_metrics
from optim import Stepper
from saver import Saver
from seeding import seed_everything, use_deterministic_kernels
from state import collect_state, pick_metric, restore_state
from stopping import TRY_AGAIN, WRONG_SETTINGS, end_on_signals, end_soon, leave
from tracker import Tracker


@record  # torchrun's report then has the traceback of the rank that failed first
def main() -> None:
    """Set up, train, clean up."""
    end_on_signals()  # until there is something to save
    is_main = os.environ.get("RANK", "0") == "0"
    config = load_config(quiet=not is_main)
    try:
        world = setup_ddp(config.device, config.collective_timeout)
        exit_code = train(config, world)  # the DDP object dies in there, before its process group
    except SettingsError as error:  # raised on every rank
        if is_main:
            print(f"error: {error}", file=sys.stderr)
        leave(WRONG_SETTINGS)
    except BaseException:
        end_soon()  # and no collective from here on: the others may be gone, or wait elsewhere
        raise
    cleanup_ddp()
    leave(exit_code)


def train(config: Config, world: World) -> int:
    """Run the epochs that are left and return the exit code. Call on every rank."""
    if config.deterministic:
        use_deterministic_kernels()
    plan = plan_batches(config, world.world_size)
    seed_everything(config.seed)  # the same weights and the same split on every rank
    train_set, validation_set = build_datasets(config)
    train_sampler, train_loader = build_train_loader(config, world, plan, train_set)
    shard, validation_loader = build_validation_loader(config, world, plan, validation_set)
    model = build_model(config).to(world.device)
    stepper = Stepper(config, plan, model, world.device, batches=len(train_loader))
    seed_everything(config.seed + 1 + world.rank)  # but different dropout on every rank

    saver = Saver(config, world)
    progress = restore_state(saver.load(), config, world, model, stepper, train_sampler.size)
    if (option := progress.ended(config)) and not config.eval_only:
        how = f"give more {option} to go on, or another --name"
        world.print(f"run {config.name} has ended: {progress}; {how}")
        return 0

    exchange = Exchange(config, world)  # from here on a signal is a wish, granted after a step
    tracker = Tracker(config, enabled=world.is_main, step=progress.step)
    tracker.print(f"{plan}, {stepper}, from step {progress.step} on {world.device.type}")
    if config.eval_only:
        metrics = evaluate(world, stepper, shard, validation_loader, exchange)
        if exchange.stop:
            return TRY_AGAIN
        tracker.log("validation", metrics, progress.step)
        extras.show(config, stepper.evaluated_model(), validation_set, tracker, progress.step)
        return 0

    if progress.step == 0 and config.best_metric != "loss":  # a wrong name must not cost an epoch
        first = islice(validation_loader, 1)
        if metrics := evaluate(world, stepper, shard, first, exchange):
            pick_metric(config, metrics)
    ddp = wrap_model(config, world, model)  # DDP does not see later changes of the model
    meter, profiler = Meter(world), StepProfiler(config, world)

    def save(best: bool = False) -> None:
        state = collect_state(config, model, stepper, progress)  # a collective: on every rank
        saver.save(state, progress.step, best=best)
        exchange.saved()

    while not progress.ended(config) and not exchange.stop:
        train_sampler.set_epoch(progress.epoch, progress.position)  # before iterating
        ddp.train()
        exchange.restart(progress.step)
        meter.start_epoch()
        bar = tqdm(train_loader, f"epoch {progress.epoch + 1}", leave=False, disable=world.no_bar)
        for window in windows(meter.timed(bar), plan):
            loss = train_step(ddp, stepper, window, world.device)
            stepper.step(progress)
            progress.step += 1
            progress.position += len(window) * plan.samples_per_pass
            meter.add(loss, len(window) * plan.samples_per_pass)
            profiler.step()
            if exchange.due(progress.step):  # only here a rank waits for the device and the others
                losses, skips = exchange.run(progress.step, meter.losses, stepper.skips)
                meter.count(losses)
                stepper.count(skips)
                if progress.step % config.log_every == 0:
                    line = meter.read(stepper.lr, stepper.skipped)
                    tracker.log("train", extras.speed(config, model, world, line), progress.step)
            if exchange.stop or progress.step == config.limit_steps:
                break
            if exchange.save or progress.step % (config.save_every_steps or sys.maxsize) == 0:
                save()

        if not exchange.stop:
            if meter.steps:  # none when a run goes on that was stopped in its evaluation
                means = {"number": progress.epoch + 1, "loss": reduce_loss(meter.epoch_loss)}
                tracker.log("epoch", {**means, **meter.compare_ranks()}, progress.step)
            metrics = evaluate(world, stepper, shard, validation_loader, exchange)
        if not exchange.stop:  # asked for during the evaluation: it will be done again
            tracker.log("validation", metrics, progress.step)
            extras.show(config, stepper.evaluated_model(), validation_set, tracker, progress.step)
        if exchange.stop or progress.step == config.limit_steps:
            save()  # in the middle of the epoch: progress.position says where
            break
        save(best=progress.end_epoch(config, metrics))

    saver.close()
    tracker.close()
    if exchange.stop:
        how = "the same command" if config.resume == "auto" else "--resume auto"
        world.print(f"stopped by a signal at step {progress.step}; {how} goes on")
        return TRY_AGAIN
    world.print(f"done: {progress}; files in {config.run_folder}")
    return 0


def train_step(
    ddp: nn.Module, stepper: Stepper, window: list[Batch], device: torch.device
) -> Tensor:
    """Compute the gradients of one optimizer step; return this rank's mean loss, detached.

    A collective: in the last backward pass DDP averages the gradients over the ranks.
    """
    losses: list[Tensor] = []
    shares = extras.loss_shares(window, device)  # none where one pass is the whole step
    for number, batch in enumerate(window, start=1):
        batch = to_device(batch, device)
        with no_sync(ddp, when=number < len(window)):
            with stepper.autocast():
                output = ddp(batch[0])  # not ddp.module(...): it would not average the gradients
                loss = loss_fn(output, batch)
                if shares:
                    loss = loss * shares[number - 1]
            stepper.backward(loss)  # this rank's own loss: DDP divides by the number of ranks
        losses.append(loss.detach())
    return sum(losses[1:], losses[0])


@torch.inference_mode()
def evaluate(
    world: World,
    stepper: Stepper,
    shard: ShardBatchSampler,
    batches: Iterable[Batch],
    exchange: Exchange,
) -> dict[str, float]:
    """Return the exact metrics of all ranks' batches, {} when asked to stop meanwhile.

    A collective: call on every rank. Not through DDP: some ranks may have one batch more.
    """
    model = stepper.evaluated_model().eval()
    share_buffers(model)  # BatchNorm has other statistics on each rank
    totals: dict[str, Tensor] = {}
    exchange.restart(0)
    for number, batch in enumerate(batches, start=1):
        batch = to_device(batch, world.device)
        with stepper.autocast():
            sums = update_metrics(model(batch[0]), batch)
        for name, value in sums.items():
            value = torch.as_tensor(value, dtype=torch.float64, device=world.device)
            totals[name] = totals[name] + value if name in totals else value
        if number <= shard.batches_on_every_rank and exchange.due(number):
            exchange.run(number)
            if exchange.stop:
                return {}
    if shard.is_empty:  # fewer samples than ranks: this one only lent the shapes
        totals = {name: torch.zeros_like(value) for name, value in totals.items()}
    metrics = compute_metrics(sum_over_ranks(totals))
    return {name: float(value) for name, value in metrics.items()}


if __name__ == "__main__":
    main()
