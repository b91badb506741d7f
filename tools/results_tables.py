"""Tables and figures from the results files in bench/results."""

import fnmatch
import json
import math

NONE = "–"
# Peers as the programs called them that measured copy, gemm and transform before `penstock bench` did.
FORMER_NAMES = {"cublasLt": "cuBLASLt", "cublasLt-best16": "cuBLASLt-best16", "cub": "CUB"}


class Unreadable(Exception):
    """A results file that is not as expected, or a figure that it does not hold."""


def read(path):
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Unreadable(f"{path}: expected a results file, got {error}") from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise Unreadable(f"{path}: expected an object of schema 1")
    if not any(isinstance(document.get(part), list) for part in ("cases", "rungs")):
        raise Unreadable(f"{path}: expected a list of cases or of rungs")
    for place in [document, *document.get("cases", [])]:
        for part in ("peers", "peer"):
            if isinstance(place, dict) and isinstance(place.get(part), dict):
                place[part] = {FORMER_NAMES.get(name, name): of for name, of in place[part].items()}
    return document


def shown_us(us):
    if us is None:
        return NONE
    for unit, scale in (("µs", 1), ("ms", 1e3)):
        if us < 1e3 * scale:
            return f"{us / scale:.4g} {unit}"
    return f"{us / 1e6:.4g} s"


def percent(share):
    return NONE if share is None else f"{100 * share:.1f} %"


def ratio(value, digits=3):
    return NONE if value is None else f"{value:.{digits}f}"


def over(numerator, denominator):
    return numerator / denominator if numerator and denominator else None


def judged_us(times):
    """The time that counts: the GPU's own if it is known, else that of the call."""
    return None if times is None else times.get("gpu_us", times.get("call_us"))


def fastest_us(case):
    """The time of the fastest peer of a case, if it has one."""
    times = [judged_us(peer) for peer in case["peer"].values()]
    return min((us for us in times if us), default=None)


def geometric_mean(values):
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def table(columns, rows):
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|---|" + "---:|" * (len(columns) - 1))
    return "\n".join(lines)


def of_peak(counters, unit):
    share = counters.get(f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed")
    return percent(None if share is None else share / 100)


# What floors were before the rule for them; see floor_of.
FORMER_FLOOR = ("a median, the time of a peer, or a time computed from a copy rate, because these "
                "results are older than the rule for floors")


def floor_of(document, case):
    """The time that a case cannot beat. Files without the hash of their sources are older than the rule
    that says so: what they call a floor is a yardstick."""
    return case.get("floor_us") if "sources" in document else None


def yardstick_of(document, case):
    """The name and the time of a case's yardstick."""
    if "yardstick_us" in case:
        return case["yardstick"], case["yardstick_us"]
    former = case.get("floor_us") if "sources" not in document else None
    return FORMER_FLOOR if former else None, former


def of_cases(document):
    """Our time per case, its floor, its yardstick and its peers."""
    cases, peers = document["cases"], list(document["peers"])
    floors = any(floor_of(document, case) for case in cases)
    yardsticks = list(dict.fromkeys(name for case in cases if (name := yardstick_of(document, case)[0])))
    counted = any(case.get("metrics", {}).get("counters") for case in cases)
    columns = ["case", "ours"]
    columns += ["floor", "ours / floor"] if floors else []
    engines = list(dict.fromkeys(name for case in cases
                                 for name in case.get("metrics", {}).get("engines_us", {})))
    columns += [f"{name} alone" for name in engines]
    columns += ["yardstick", "yardstick / ours"] if yardsticks else []
    for peer in peers:
        columns += [peer, f"{peer} / ours"]
    columns += ["DRAM"] if counted else []
    installs = any("install_us" in case.get("metrics", {}) for case in cases)
    columns += ["installing packages before it"] if installs else []
    kept = any("commit" in case or "date" in case for case in cases)  # from an earlier run
    columns += ["measured"] if kept else []
    rows = []
    for case in cases:
        ours = judged_us(case["ours"])
        row = [case["case"], shown_us(ours)]
        if floors:
            floor = floor_of(document, case)
            row += [shown_us(floor), ratio(over(ours, floor))]
        row += [shown_us(case.get("metrics", {}).get("engines_us", {}).get(name)) for name in engines]
        if yardsticks:
            yardstick = yardstick_of(document, case)[1]
            row += [shown_us(yardstick), ratio(over(yardstick, ours))]
        for peer in peers:
            time = judged_us(case["peer"].get(peer))
            row += [shown_us(time), ratio(over(time, ours))]
        if counted:
            row.append(of_peak(case.get("metrics", {}).get("counters", {}), "dram"))
        if installs:
            row.append(shown_us(case.get("metrics", {}).get("install_us")))
        if kept:
            row.append(f"{case.get('date', document['date'])}, {case.get('commit', document['commit'])}")
        rows.append(row)
    parts = [table(columns, rows)]
    notes = []
    if floors:
        notes.append("*floor*: the best time of the slowest engine alone, measured in the same run.")
    if yardsticks:
        notes.append(f"*yardstick*: {'; '.join(yardsticks)}. It may be beaten.")
    if peers:
        notes.append("Peers: " + ", ".join(f"{peer} {document['peers'][peer]}" for peer in peers)
                     + ".")
    if counted:
        notes.append("*DRAM*: share of the peak bandwidth, counted by ncu.")
    return parts + ([" ".join(notes)] if notes else []) + left_out(cases)


def left_out(cases):
    """Peers that could not run a case or were wrong, and why."""
    found = {}
    for case in cases:
        for peer, reason in case.get("metrics", {}).get("left_out", {}).items():
            found.setdefault((peer, reason), []).append(case["case"])
    return [f"{peer} is left out in {'; '.join(names)}: {reason}."
            for (peer, reason), names in found.items()]


def of_calls(document):
    """GPU, call and host times, where a case has all of them."""
    rows = []
    for case in document["cases"]:
        ours, metrics = case["ours"], case.get("metrics", {})
        if "enqueue_us" in metrics and "gpu_us" in ours:
            rows.append([case["case"], *map(shown_us, (
                ours["gpu_us"], ours.get("call_us"), ours.get("host_us"), metrics["enqueue_us"],
                metrics.get("sustained_us")))])
    if not rows:
        return []
    return ["## Call and host times",
            table(["case", "GPU time", "call time after a pause", "host time after a pause",
                   "host time, back to back", "time per call, back to back"], rows),
            "*After a pause*: one call at a time, each after a rest. *Call time*: until the "
            "work is done, on the host's clock. *Host time*: until the call returns. *Back to back*: "
            "up to 200 calls in a row without waiting, so that the host's caches and clocks are warm."]


def variants(document):
    """The section of a page with our times by other kernels, layouts and options; "" if there are none."""
    names = dict.fromkeys(name for case in document.get("cases", [])
                          for name in case.get("metrics", {}).get("kernels", {}))
    if not names:
        return ""
    rows = [[case["case"], shown_us(judged_us(case["ours"])),
             *(shown_us(judged_us(kernels.get(name))) for name in names)]
            for case in document["cases"] if (kernels := case.get("metrics", {}).get("kernels"))]
    return (f"\n## Other kernels, layouts and options\n\n{table(['case', 'ours', *names], rows)}\n\n"
            "Our times of the same work in other ways, from the same interleaved runs.\n")


def of_phases(document):
    """What the phases of a case took, where it printed them."""
    found = [(case["case"], phases) for case in document["cases"]
             if (phases := case.get("metrics", {}).get("phases_us"))]
    parts = []
    for name, phases in found:
        parts += [f"## Phases of `{name}`",
                  table(["phase", "time"], [[phase, shown_us(us)] for phase, us in phases.items()]),
                  "A phase that runs *in the background* does so beside the phases after it."]
    return parts


def of_launches(document):
    """What calls cost the host, where launches were counted."""
    rows = [[case["case"], shown_us(metrics["enqueue_us"]), metrics["launches"],
             metrics["other_operations"], shown_us(metrics["first_call_us"])]
            for case in document["cases"] if "launches" in (metrics := case.get("metrics", {}))]
    if not rows:
        return []
    return [table(["case", "host time, back to back", "kernels", "other operations", "first call"], rows)]


def of_profiles(document):
    """Hardware counters, one row per kernel; times are per call."""
    units = {"DRAM": "dram", "L1": "l1tex", "SMs": "sm"}
    rows = []
    for case in document["cases"]:
        for kernel, counters in case["profiles"].items():
            seconds, read_bytes, written = (counters[metric] / document["calls"] for metric in (
                "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"))
            rows.append([f"{case['case']}: {kernel}", shown_us(seconds * 1e6),
                         f"{read_bytes * 1e-6:.2f} MB", f"{written * 1e-6:.2f} MB",
                         percent(counters["of_ceiling"]),
                         *(of_peak(counters, unit) for unit in units.values())])
    return [table(["kernel", "time", "DRAM read", "DRAM written", "share of the copy rate", *units],
                  rows),
            "Measured by ncu, per call. The last three columns are shares of the hardware's peak."]


def of_rungs(document):
    everything = [(rung, row) for rung in document["rungs"] for row in rung["rows"]]
    # Rows of one kernel may differ in their work alone.
    labels = [(rung["name"], row["label"]) for rung, row in everything]
    several = len(set(labels)) < len(labels)
    rows = [[f"{rung['name']}: {row['label']}", *([row.get("work", "")] if several else []),
             row_time(row), ratio(row["speedup"], 2), percent(row["hidden"]),
             percent(row["efficiency"])] for rung, row in everything]
    # Kernels are compared with cudaMemcpy and the peak of the arithmetic, which are yardsticks.
    kernels = all("machine" in rung for rung in document["rungs"])
    compared = "yardstick" if kernels else "floor"
    return [table(["rung", *(["work"] if several else []), "time", "speed-up", "hidden",
                   f"{compared} / time"], rows),
            "*speed-up*: relative to the first row of the same work. *hidden*: the share that overlap "
            "hid of the time that it can hide."
            + (" *yardstick*: cudaMemcpy, a plain read, or the measured peak of the arithmetic." if kernels else ""),
            *of_counters(document), *of_verdicts(document)]


def of_counters(document):
    """What ncu counted of a ladder's rows, if it was asked to."""
    counted = [(rung, row, row["counters"]) for rung in document["rungs"] for row in rung["rows"]
               if row.get("counters")]
    if not counted:
        return []
    return [table(["rung", "work", "DRAM bandwidth", "DRAM read", "DRAM written", "L2 hits"],
                  [[f"{rung['name']}: {row['label']}", row.get("work", ""), percent(counters["dram_share"]),
                    f"{counters['dram_read_bytes'] / 1e6:.1f} MB",
                    f"{counters['dram_written_bytes'] / 1e6:.1f} MB",
                    percent(counters["l2_hit_rate"])] for rung, row, counters in counted]),
            "Counted by ncu, one run per row. The bandwidth is a share of the hardware's peak."]


def of_verdicts(document):
    """Whether a ladder keeps what it promises."""
    answers = {True: "met", False: "not met", None: "not measured"}
    found = document.get("verdicts", [])
    return [table(["criterion", "verdict", "measured"],
                  [[one["criterion"], answers[one["met"]], one["measured"]] for one in found])
            ] if found else []


def row_time(row):
    """The time of a ladder's row, or why it has none."""
    if row["seconds"]:
        return shown_us(row["seconds"] * 1e6)
    if row.get("dropped"):
        return f"dropped: {row['dropped']}"
    return row.get("note") or NONE


def of_works(document):
    """A ladder whose rungs ran in interleaved runs with the library's own operator."""
    rungs = {rung["name"]: [row for row in rung["rows"] if row["seconds"]]
             for rung in document["rungs"]}
    works = list(dict.fromkeys(row["work"] for rows in rungs.values() for row in rows))
    lines = []
    for work in works:
        here = {name: [row for row in rows if row["work"] == work] for name, rows in rungs.items()}
        cells = [shown_us(min((row["seconds"] * 1e6 for row in rows), default=None))
                 for rows in here.values()]
        beside = [row["seconds"] / row["library_seconds"]
                  for name, rows in here.items() if name != "library" for row in rows]
        copy = [row["seconds"] * row["efficiency"] * 1e6 for row in here["library"]]
        lines.append([work, *cells, shown_us(min(copy, default=None)),
                      ratio(min(beside, default=None), 2)])
    return [table(["work", *rungs, "cudaMemcpy", "best rung / library"], lines),
            "Times of the best row of each rung. *cudaMemcpy*: a copy of the same size, rounded up to "
            "whole pages. *best rung / library*: from interleaved runs; at 1 or above, no rung is "
            "faster than the library."]


def has_library(document):
    return any("library_seconds" in row for rung in document["rungs"] for row in rung["rows"])


def doubts(document):
    """Why a checkout of the commit, or of today's tree, may not give these results."""
    if document.get("stale"):
        yield "The code that was measured has changed since."
    if document["commit"].endswith("-dirty"):
        yield "The tree had changes that were not committed."


def provenance(documents):
    """When a table's benchmarks were measured, if their sources have changed since or were not committed."""
    found = {}
    for name, document in documents.items():
        if document.get("commit") and (reasons := " ".join(doubts(document))):
            run = f"on {document['date'][:10]} at commit {document['commit']}"
            found.setdefault(reasons, {}).setdefault(run, []).append(name)
    several = len(documents) > 1
    sentences = []
    for reasons, runs in found.items():
        when = [f"{run} ({', '.join(names)})" if several else run for run, names in runs.items()]
        sentences.append(f"Measured {', '.join(when)}. {reasons}")
    return sentences


def dropped(document):
    """The cases that beat their floor, and by how much."""
    return [f"Dropped: {case['case']}: {case['reason']}." for case in document.get("dropped", [])]


def stamp(document):
    """Where, when and on which sources the results were measured."""
    machine = document["machine"]
    where = machine.get("gpu", machine.get("model"))
    if where in (None, "", "none"):
        where = machine["cpu"]
    driver = f", driver {machine['driver']}" if machine.get("driver") else ""
    line = f"{where}{driver}, CUDA {machine['cuda']}, {document['date']}, commit {document['commit']}."
    line += "".join(f" {sentence}" for sentence in doubts(document))
    rates = [(key.removesuffix("_GBps").replace("_", " "), rate)
             for key, rate in machine.get("ceilings", {}).items() if key.endswith("_GBps")]
    if rates:
        line += (" Measured ceilings: "
                 + ", ".join(f"{name} {rate:.4g} GB/s" for name, rate in rates) + ".")
    return line


def body(path, document, calls=True):
    """Stamp, tables and the command that repeats the measurement."""
    try:
        if "rungs" in document:
            parts = of_works(document) if has_library(document) else of_rungs(document)
        elif "calls" in document:
            parts = of_profiles(document)
        else:
            parts = (of_cases(document) + of_launches(document) + of_phases(document)
                     + (of_calls(document) if calls else []))
        parts += dropped(document)
        command = document.get("command", f"scripts/gpu_bench.sh {path.stem} --again")
        return "\n\n".join([stamp(document), *parts, f"To measure again: `{command}`."])
    except (KeyError, TypeError, AttributeError, ZeroDivisionError, IndexError) as error:
        raise Unreadable(f"{path}: not a valid results file: {type(error).__name__} {error}") from None


def headline(path, document):
    """The result of a benchmark in a few words."""
    try:
        if "rungs" in document:
            return ladder_headline(document)
        if "calls" in document:
            return f"counters of {sum(len(case['profiles']) for case in document['cases'])} kernels"
        return cases_headline(document)
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
        raise Unreadable(f"{path}: not a valid results file: {type(error).__name__} {error}") from None


FEW = 4  # cases whose times are all named in the summary


def cases_headline(document):
    parts = []
    # Of a benchmark of many kernels, the best ones.
    cases = [case for case in document["cases"] if case["case"].endswith(", best")]
    cases = cases or document["cases"]
    floors = [over(judged_us(case["ours"]), floor_of(document, case)) for case in cases]
    floors = sorted(value for value in floors if value)
    if floors:
        parts.append(f"{spread(floors)} × the floor")
    for peer in document["peers"]:
        found = [over(judged_us(case["peer"].get(peer)), judged_us(case["ours"]))
                 for case in cases]
        found = [value for value in found if value]
        if found and len(parts) < 3:
            parts.append(f"{geometric_mean(found):.3g} × as fast as {peer}")
    if not parts:
        times = {case["case"]: judged_us(case["ours"]) for case in cases}
        parts = ([f"{name}: {shown_us(us)}" for name, us in times.items()] if len(times) <= FEW else
                 [f"{shown_us(min(times.values()))} to {shown_us(max(times.values()))}"])
        parts = parts or ["no case"]
    if document.get("dropped"):
        parts.append(f"{len(document['dropped'])} dropped")
    return "; ".join(parts)


def ladder_headline(document):
    rows = [row for rung in document["rungs"] for row in rung["rows"]]
    best = max((row["efficiency"] for row in rows if row.get("efficiency") and row["seconds"]),
               default=None)
    return (f"{len(document['rungs'])} rungs"
            + (f", best {percent(best)} of its floor or yardstick" if best else ""))


def spread(values):
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


# Single figures, which pages name by an expression.

def value_of(case, path):
    """A number of a case: a field such as metrics.of_cub; PEER/ours; fastest/ours, for the fastest peer;
    or over_floor."""
    if path == "over_floor":
        return over(judged_us(case["ours"]), case.get("floor_us"))
    if path == "fastest/ours":
        return over(fastest_us(case), judged_us(case["ours"]))
    if path.endswith("/ours"):
        return over(judged_us(case["peer"].get(path.removesuffix("/ours"))), judged_us(case["ours"]))
    if path.startswith("ours/"):
        return over(judged_us(case["ours"]), judged_us(case["peer"].get(path.removeprefix("ours/"))))
    found = case
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


UNITS = {"us": shown_us, "percent": percent, "ratio": ratio,
         "ratio2": lambda value: ratio(value, 2), "more": lambda value: f"{100 * (value - 1):.0f} %",
         "whole": lambda value: f"{value:.0f}",
         "seconds": lambda us: f"{1e-6 * us:.0f} s",
         "minutes": lambda us: f"{math.ceil(us / 60e6)} minutes",
         "multiply_adds": lambda value: f"{2e-12 * value:.0f} TFLOP/s"}


def figure(document, expression):
    """For example `mean ratio of cub/ours in *`, or `value us of ours.gpu_us in 1 GiB, best`.

    `in facts` means what a ladder measured besides its rungs.
    """
    words, _, pattern = expression.partition(" in ")
    kind, unit, word, path, *rest = [*words.split(), "", "", "", ""]
    if word != "of" or any(rest) or unit not in UNITS or not pattern:
        raise Unreadable(f"'{expression}': expected 'value|mean|least|most|spread UNIT of FIELD in "
                         f"CASES', with a unit of {', '.join(UNITS)}")
    cases = ([document.get("facts", {})] if pattern == "facts" else
             [case for case in document.get("cases", [])
              if fnmatch.fnmatchcase(case["case"], pattern)])
    values = [value_of(case, path) for case in cases]
    values = [value for value in values if isinstance(value, int | float)]
    show = UNITS[unit]
    if not values and any(fnmatch.fnmatchcase(case["case"], pattern)
                          for case in document.get("dropped", [])):
        return "(dropped)"
    if not values:
        raise Unreadable(f"'{expression}': no case of {document.get('name')} has it")
    if kind == "value" and len(values) > 1:
        raise Unreadable(f"'{expression}': expected one case, got {len(values)}")
    if kind == "spread":
        low, high = show(min(values)), show(max(values))
        return low if low == high else f"{low} to {high}"
    reduce = {"value": min, "mean": geometric_mean, "least": min, "most": max}.get(kind)
    if reduce is None:
        raise Unreadable(f"'{expression}': expected value, mean, least, most or spread")
    return show(reduce(values))
