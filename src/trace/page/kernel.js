// Texts and buttons for the roles inside a kernel.

const KERNEL_HELP = ' Click a framed bar, or press Enter on it, to see the roles inside that kernel.';

// How far the times of the roles can be trusted; shown wherever they are.
function alignmentText({ error, lost }) {
  const parts = [`clocks aligned to within ${formatTime(Number(error.max_ns ?? NaN))} ` +
                 `(median ${formatTime(Number(error.median_ns ?? NaN))})`];
  if (error.place_ns > 0) parts.push(`placed to within ${formatTime(Number(error.place_ns))}`);
  if (lost > 0) parts.push(`${lost} records did not fit`);
  return parts.join(', ');
}

// One button per kernel, with the accuracy of its clocks.
function kernelButtons(runs, into) {
  const rows = runs.flatMap((run) => run.kernels.map((kernel) => {
    const name = `zoom into ${kernel.name}`;
    const button = element('button', { type: 'button', class: 'button', 'aria-label': name,
      title: `show the roles inside ${kernel.name}` }, name);
    button.addEventListener('click', () => into(kernel));
    const where = runs.length > 1 ? `${run.name}: ` : '';
    return element('li', {}, button, element('span', {}, where + alignmentText(kernel)));
  }));
  return rows.length > 0 ? element('ul', { class: 'kernels' }, rows) : null;
}

// The kernel that an interval is the bar of, if any.
function kernelAt(runs, chosen) {
  return chosen && runs[chosen.run].kernels.find(({ bar }) =>
    bar?.lane === chosen.lane && bar.index === chosen.index);
}

// A kernel's bar near the pointer that is too narrow to hit.
function narrowKernelBar(run, lane, row, time, near) {
  return run.kernels.map((kernel) => kernel.bar).find((bar) => {
    if (bar?.lane !== lane || run.lanes[lane].row[bar.index] !== row) return false;
    const { begin, length } = run.lanes[lane];
    const from = begin[bar.index], to = from + length[bar.index];
    return to - from < 2 * near && time > from - near && time < to + near;
  });
}

function rolesTable(runs) {
  return textAlternative('Roles inside kernels as a table',
    [{ name: 'kernel' }, { name: 'block', numeric: true }, { name: 'SM', numeric: true },
     { name: 'role' }, { name: 'spans', numeric: true }, { name: 'busy', numeric: true },
     { name: 'of the kernel', share: true }],
    runs.flatMap((run) => run.kernels.flatMap((kernel) => kernel.lanes.map((lane) =>
      [kernel.name, lane.block, lane.sm, lane.engine, lane.count, formatTime(lane.busy),
       lane.count > 0 ? lane.share : null]))));
}
