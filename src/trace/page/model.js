// Decodes the runs of a timeline to sorted intervals in flat arrays, and searches in them.

// The times of intervals that are sorted by begin. `reach[i]` is the latest end among 0..i: ends
// need not be in order where intervals overlap, and reach always is.
function timesOf(intervals) {
  const begin = Float64Array.from(intervals, (one) => one.begin);
  const length = Float64Array.from(intervals, (one) => one.length);
  const reach = new Float64Array(intervals.length);
  let busy = 0, latest = -Infinity;
  for (let i = 0; i < intervals.length; ++i) {
    const end = begin[i] + length[i];
    busy += Math.max(0, end - Math.max(begin[i], latest));
    reach[i] = latest = Math.max(latest, end);
  }
  return { begin, length, reach, busy };
}

// Begins come as differences to the one before. Intervals of a lane that overlap have different
// rows; `rows[r].indices` are the places in the lane of the intervals of row r.
function decodeLane(lane) {
  const deltas = list(lane.begin_ns), lengths = list(lane.length_ns), items = list(lane.items);
  const rowNumbers = list(lane.rows);
  const intervals = [];
  let at = 0;
  for (let i = 0; i < deltas.length; ++i) {
    at += Number(deltas[i]) || 0;
    intervals.push({ begin: at, length: Math.max(0, Number(lengths[i]) || 0), item: items[i] ?? i,
                     row: Math.min(Math.max(0, Math.trunc(rowNumbers[i]) || 0), deltas.length - 1) });
  }
  if (intervals.some((one, i) => i > 0 && one.begin < intervals[i - 1].begin)) {
    intervals.sort((a, b) => a.begin - b.begin);
  }

  const row = intervals.map((one) => one.row);
  const members = Array.from({ length: row.reduce((most, one) => Math.max(most, one), 0) + 1 },
                             () => []);
  row.forEach((number, i) => members[number].push(i));
  const engine = text(lane.engine) || 'host';
  return { engine, stage: text(lane.stage) || engine, items: intervals.map((one) => one.item), row,
           ...timesOf(intervals), count: intervals.length,
           rows: members.map((indices) => ({ indices, ...timesOf(indices.map((i) => intervals[i])) })) };
}

// The inside of a kernel: the lanes of its roles, and its bar (a lane and an index).
function decodeKernel(given, lanes) {
  const kernel = { name: text(given.name) || 'a kernel', lost: Number(given.lost) || 0,
                   error: given.error ?? {} };
  kernel.lanes = list(given.lanes).map((lane) => ({
    ...decodeLane({ ...lane, engine: text(lane.role) || 'role', stage: `block ${text(lane.block)}` }),
    kernel, block: text(lane.block), sm: text(lane.sm) }));
  const bar = { lane: Number(given.bar?.lane), index: Number(given.bar?.index) };
  const within = lanes[bar.lane];
  kernel.bar = within && bar.index >= 0 && bar.index < within.count ? bar : null;
  const full = kernel.lanes.filter((lane) => lane.count > 0);
  const begins = full.map((lane) => lane.begin[0]);
  const ends = full.map((lane) => lane.reach[lane.count - 1]);
  if (Number.isFinite(given.begin_ns)) begins.push(given.begin_ns);
  if (Number.isFinite(given.end_ns)) ends.push(given.end_ns);
  kernel.begin = begins.length > 0 ? Math.min(...begins) : 0;
  kernel.end = Math.max(kernel.begin, ...ends);
  const length = kernel.end - kernel.begin;
  for (const lane of kernel.lanes) lane.share = length > 0 ? lane.busy / length : NaN;
  return kernel;
}

// Empty if nothing is missing from a run.
function lostText({ lost }) {
  return lost > 0 ? `${lost} ${lost === 1 ? 'record' : 'records'} lost` : '';
}

function decodeRun(run) {
  const engines = list(run.lanes).map(decodeLane);
  const kernels = list(run.kernels).map((kernel) => decodeKernel(kernel ?? {}, engines));
  const lanes = [...engines, ...kernels.flatMap((kernel) => kernel.lanes)];
  const full = lanes.filter((lane) => lane.count > 0);
  const first = Math.min(...full.map((lane) => lane.begin[0]));
  const last = Math.max(...full.map((lane) => lane.reach[lane.count - 1]));
  const span = full.length > 0 ? last - first : 0;
  const total = Number(run.total_ns) > 0 ? Number(run.total_ns) : span;
  for (const lane of engines) lane.share = total > 0 ? lane.busy / total : NaN;
  return { name: text(run.name), total, lanes, engines, kernels,
           lost: Number(run.lost_records) || 0,
           begin: full.length > 0 ? Math.min(0, first) : 0,
           end: full.length > 0 ? Math.max(total, last) : total };
}

// First index in 0..count at which `sorted` is not below (or, with `past`, is above) the value.
function search(sorted, value, past = false) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] < value || (past && sorted[middle] === value)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The indices first..last-1 of a row hold every interval that touches begin..end.
function touching(row, begin, end) {
  return [search(row.reach, begin), search(row.begin, end, true)];
}

// The place in its lane of a row's interval at a time, or of the nearest within `slack`; -1 where
// there is none.
function intervalAt(row, time, slack) {
  let best = -1, bestAway = slack;
  for (let i = search(row.begin, time + slack, true) - 1; i >= 0; --i) {
    if (row.reach[i] < time - slack) break;
    const away = Math.max(row.begin[i] - time, time - row.begin[i] - row.length[i], 0);
    if (away < bestAway || (best < 0 && away <= bestAway)) [best, bestAway] = [row.indices[i], away];
    if (bestAway === 0) break;
  }
  return best;
}
