"""All checks in their order: first what is quick, then a training, then the disk for its files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddpgen.doctor import trial
from ddpgen.doctor.checkout import check_git, check_template
from ddpgen.doctor.disk import check_disk
from ddpgen.doctor.finding import Finding, skipped
from ddpgen.doctor.gpus import check_gpus
from ddpgen.doctor.interview import Inside, ask
from ddpgen.doctor.machine import check_machine, usable_cores
from ddpgen.doctor.network import check_network
from ddpgen.doctor.patient import Patient
from ddpgen.doctor.software import check_software, read_bounds

KEPT = 3  # checkpoints, when the project's settings cannot be read


class Examination:
    """One visit to the doctor.

    Attributes:
        patient: the project.
        processes: how many train in the trial; 0 until it is known.
        figures: what the trial has measured; None until then.
        findings: what was found so far.
    """

    def __init__(self, patient: Patient, *, quick: bool, patience: float) -> None:
        """Prepare it.

        Args:
            patient: the project.
            quick: start no training.
            patience: seconds without progress after which a process hangs.
        """
        self.patient = patient
        self.quick = quick
        self.patience = patience
        self.processes = 0
        self.figures: trial.Figures | None = None
        self.findings: list[Finding] = []

    @property
    def healthy(self) -> bool:
        """Whether nothing has to be repaired."""
        return all(finding.status != "error" for finding in self.findings)

    def run(self) -> Iterator[Finding]:
        """Yield each finding as soon as it is known. No process and no file is left at the end."""
        with tempfile.TemporaryDirectory(prefix="ddpgen-doctor-") as folder:
            for finding in self._checks(Path(folder)):
                self.findings.append(finding)
                yield finding

    def _checks(self, scratch: Path) -> Iterator[Finding]:
        patient = self.patient
        yield check_template(patient.origin)
        yield check_git(patient.folder)
        inside = ask(patient, scratch, self.patience)
        gpus = 0 if patient.device == "cpu" else len(inside.gpus)
        workers = inside.settings.get("num_workers", 0)
        self.processes = patient.processes(gpus, usable_cores())
        yield from check_software(patient, read_bounds(patient.folder), inside)
        yield from check_gpus(patient, inside, self.processes)
        yield from check_machine(self.processes, workers, gpus)
        # Since 0.3.0 launch.sh names an interface to gloo, which knows no 127.0.1.1 then.
        names_interface = (patient.folder / "machines.py").exists()
        yield from check_network(patient.machines, names_interface=names_interface)
        checkpoint = None
        if self.quick:
            yield from (skipped(row, "no training with --quick") for row in trial.ROWS)
        elif not inside.can_train:
            yield from (skipped(row, "needs torch and the settings") for row in trial.ROWS)
        elif 0 < gpus < self.processes:
            yield from (skipped(row, "needs a GPU for each process") for row in trial.ROWS)
        else:
            trained = trial.Trial(patient, self.processes, scratch, self.patience)
            yield from trained.findings()
            self.figures, checkpoint = trained.figures, trained.checkpoint_bytes
        yield self._disk(inside, checkpoint)

    def _disk(self, inside: Inside, checkpoint: int | None) -> Finding:
        usual = str(self.patient.folder / "runs" / "default")
        run_folder = Path(inside.settings.get("run_folder", usual))
        return check_disk(run_folder, checkpoint, inside.settings.get("keep_checkpoints", KEPT))
