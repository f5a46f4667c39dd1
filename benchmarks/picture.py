"""Draw results/training.json as results/training.svg.

python benchmarks/picture.py
"""

from __future__ import annotations

from matplotlib import pyplot

from results_folder import FOLDER, earlier_rounds
from training import NAMES, against

COLOURS = {"ours": "#c0392b", "bare": "#333333"}
OTHERS = "#7f8c8d"
LONGEST = 4.0  # times BARE; a longer bar is cut, its number is written beside it


def main() -> None:
    """Draw a panel for each workload: one bar for each loop, its interval, its number."""
    rounds = earlier_rounds("training")
    pyplot.rcParams.update({"svg.hashsalt": "ddpgen", "font.size": 9})  # the same file each time
    figure, panels = pyplot.subplots(1, len(rounds), figsize=(11, 3.2), sharey=True)
    loops = list(reversed(NAMES))
    for panel, (workload, found) in zip(panels, rounds.items(), strict=True):
        for place, loop in enumerate(loops):
            ratio = against(found, loop, "bare")
            shown = [min(value, LONGEST) for value in (ratio.median, ratio.low, ratio.high)]
            panel.barh(place, shown[0], color=COLOURS.get(loop, OTHERS), height=0.7)
            panel.plot(shown[1:], [place, place], color="black", linewidth=1)
            panel.text(max(shown) + 0.05, place, f"{ratio.median:.2f}", va="center")
        panel.axvline(1, color="black", linewidth=0.6, linestyle=":")
        panel.set_title(workload)
        panel.margins(x=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(loops)), [NAMES[loop].split(":")[0] for loop in loops])
    figure.supxlabel("time of a step, BARE = 1; line: where the median lies with 95 %")
    figure.tight_layout()
    figure.savefig(FOLDER / "training.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
