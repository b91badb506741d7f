// The roles inside a kernel, as words: how well their clocks agree, and what to press.

const KERNEL_HELP = ' Pressing a framed bar, or Enter on it, shows the roles inside that kernel.';

// Every place that shows a kernel's inside shows this.
function alignmentText({ error, lost }) {
  const parts = [`clocks aligned to within ${formatTime(Number(error.max_ns ?? NaN))} ` +
                 `(median ${formatTime(Number(error.median_ns ?? NaN))})`];
  if (error.place_ns > 0) parts.push(`placed to within ${formatTime(Number(error.place_ns))}`);
  if (lost > 0) parts.push(`${lost} records did not fit`);
  return parts.join(', ');
}

// A button a kernel, with how well its clocks agree beside it.
function kernelButtons(runs, into) {
  const rows = runs.flatMap((run) => run.kernels.map((kernel) => {
    const name = `into ${kernel.name}`;
    const button = element('button', { type: 'button', class: 'button', 'aria-label': name,
      title: `show the roles inside ${kernel.name}` }, name);
    button.addEventListener('click', () => into(kernel));
    const where = runs.length > 1 ? `${run.name}: ` : '';
    return element('li', {}, button, element('span', {}, where + alignmentText(kernel)));
  }));
  return rows.length > 0 ? element('ul', { class: 'kernels' }, rows) : null;
}

// The kernel whose bar an interval is, if it is one.
function kernelAt(runs, chosen) {
  return chosen && runs[chosen.run].kernels.find(({ bar }) =>
    bar?.lane === chosen.lane && bar.index === chosen.index);
}

// A bar too narrow to be hit, where the pointer is near it.
function narrowKernelBar(run, lane, row, time, near) {
  return run.kernels.map((kernel) => kernel.bar).find((bar) => {
    if (bar?.lane !== lane || run.lanes[lane].row[bar.index] !== row) return false;
    const { begin, length } = run.lanes[lane];
    const from = begin[bar.index], to = from + length[bar.index];
    return to - from < 2 * near && time > from - near && time < to + near;
  });
}

function rolesTable(runs) {
  return textAlternative('The roles inside as a table',
    [{ name: 'kernel' }, { name: 'block', numeric: true }, { name: 'SM', numeric: true },
     { name: 'role' }, { name: 'spans', numeric: true }, { name: 'busy', numeric: true },
     { name: 'of the kernel', share: true }],
    runs.flatMap((run) => run.kernels.flatMap((kernel) => kernel.lanes.map((lane) =>
      [kernel.name, lane.block, lane.sm, lane.engine, lane.count, formatTime(lane.busy),
       lane.count > 0 ? lane.share : null]))));
}
