// Painting a timeline: the lanes on one canvas, and what follows the pointer on another one above
// it, so that moving the pointer does not repaint the lanes.

const AXIS_HEIGHT = 30, RUN_HEIGHT = 34, KERNEL_HEIGHT = 30, GUTTER = 196, MARGIN = 10;
const NARROW = 620; // in narrower windows, lane names are above the lanes, not beside them
const ODD_TONE = 0.72; // neighbours alternate, so that they differ without a gap between them
const NUMBER_WIDTH = 26, NUMBER_HEIGHT = 11; // smaller bars carry no number
// The rows of a lane share this height, as far as these limits on one row's height allow.
const ROWS_HEIGHT = 72, TALLEST_ROW = 14, LOWEST_ROW = 3;

// The height of a row, and that of the bars in it; bars that are tall enough have a gap between.
function rowHeights(rows, bar) {
  if (rows === 1) return { row: bar, bar };
  const row = Math.min(TALLEST_ROW, Math.max(LOWEST_ROW, Math.floor(ROWS_HEIGHT / rows)));
  return { row, bar: row > LOWEST_ROW ? row - 1 : row };
}

// Where the bars of one row of a lane are.
function rowPlace(place, row) {
  return { top: place.top + row * place.rowHeight, height: place.barHeight };
}

// Where everything is, in CSS pixels.
function layOut(runs, width) {
  const narrow = width < NARROW;
  const lane = narrow ? { height: 42, bar: 20, top: 18 } : { height: 27, bar: 20, top: 3 };
  const left = narrow ? MARGIN : GUTTER;
  let top = AXIS_HEIGHT;
  const placed = runs.map((run) => {
    const at = top;
    top += RUN_HEIGHT;
    const place = ({ rows }) => {
      const { row: rowHeight, bar: barHeight } = rowHeights(rows.length, lane.bar);
      const label = top, height = (rows.length - 1) * rowHeight + barHeight;
      top += lane.height - lane.bar + height;
      return { label, top: label + lane.top, height, rowHeight, barHeight };
    };
    const lanes = run.engines.map(place);
    const kernels = run.kernels.map((kernel) => {
      const heading = top;
      top += KERNEL_HEIGHT;
      lanes.push(...kernel.lanes.map(place));
      return { top: heading, bottom: top - (lane.height - lane.top - lane.bar) };
    });
    top += 6;
    return { top: at, lanes, kernels };
  });
  return { narrow, left, width, right: Math.max(left + 1, width - MARGIN), height: top + 4,
           runs: placed };
}

// Clears a canvas and sets its size in device pixels; drawing is in CSS pixels.
function blankCanvas(canvas, { width, height }) {
  const ratio = devicePixelRatio || 1;
  const wide = Math.round(width * ratio), high = Math.round(height * ratio);
  if (canvas.width !== wide) canvas.width = wide; // setting it reallocates the image
  if (canvas.height !== high) canvas.height = high;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.reset();
  context.scale(ratio, ratio);
  return { context, ratio };
}

// Cuts a text to a width with an ellipsis.
function fitted(context, string, room) {
  if (context.measureText(string).width <= room) return string;
  let low = 0, high = string.length;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (context.measureText(`${string.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return `${string.slice(0, low)}…`;
}

function readPalette(theme, tokens, fontFamily) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, theme.colour(`--${name}`)]));
  const engines = new Map();
  for (const [engine, token] of tokens) {
    const tones = [theme.colour(token), mixed(theme.colour(token), theme.colour('--track'), ODD_TONE)];
    engines.set(engine, tones.map((colour) => ({ colour, ink: inkOn(colour) })));
  }
  return { ...read(['surface', 'track', 'ink', 'muted', 'line']), engines,
           font: `12px ${fontFamily}`, bold: `600 13px ${fontFamily}` };
}

function paintAxis(context, layout, view, palette) {
  const { left, right } = layout;
  context.font = palette.font;
  context.textAlign = 'center';
  for (const tick of timeTicks(view.begin, view.end, (right - left) / 110)) {
    const x = Math.round(left + (tick.value - view.begin) / view.span * (right - left)) + 0.5;
    context.fillStyle = palette.line;
    context.fillRect(x - 0.5, AXIS_HEIGHT - 6, 1, layout.height - AXIS_HEIGHT + 2);
    const half = context.measureText(tick.label).width / 2;
    context.fillStyle = palette.muted;
    context.fillText(tick.label, Math.min(Math.max(x, half + 2), layout.width - half - 2), 17);
  }
}

function paintRunTitle(context, run, layout, place, palette) {
  context.textAlign = 'left';
  context.font = palette.bold;
  context.fillStyle = palette.ink;
  const name = fitted(context, run.name, layout.width - 140);
  const x = layout.narrow ? layout.left : 0, y = place.top + 22;
  const wide = context.measureText(name).width;
  // A background keeps the title readable on the grid.
  context.font = palette.font;
  const total = [run.total > 0 ? formatTime(run.total) : 'nothing recorded', lostText(run)]
    .filter(Boolean).join(', ');
  const all = wide + 12 + context.measureText(total).width;
  context.fillStyle = palette.surface;
  context.fillRect(x, place.top + 6, all + 6, RUN_HEIGHT - 12);
  context.fillStyle = palette.muted;
  context.fillText(total, x + wide + 10, y);
  context.font = palette.bold;
  context.fillStyle = palette.ink;
  context.fillText(name, x, y);
}

// The kernel that the lanes below belong to, and the accuracy of their clocks.
function paintKernelTitle(context, kernel, layout, place, palette) {
  const x = layout.narrow ? layout.left : 0;
  context.textAlign = 'left';
  context.font = palette.font;
  const name = fitted(context, `inside ${kernel.name}`, layout.width - x - 20);
  const wide = context.measureText(name).width;
  const error = fitted(context, alignmentText(kernel), layout.width - x - wide - 30);
  context.fillStyle = palette.surface;
  context.fillRect(x, place.top + 4, wide + 16 + context.measureText(error).width, KERNEL_HEIGHT - 8);
  context.fillStyle = palette.ink;
  context.fillText(name, x, place.top + 19);
  context.fillStyle = palette.muted;
  context.fillText(error, x + wide + 10, place.top + 19);
}

// Calls paint(left, right, top, bottom) with the place of a kernel's bar, inside the lanes' area.
function atKernelBar(context, run, kernel, view, layout, places, paint) {
  if (!kernel.bar) return;
  const lane = run.lanes[kernel.bar.lane];
  const { top, height } = rowPlace(places[kernel.bar.lane], lane.row[kernel.bar.index]);
  const perNs = (layout.right - layout.left) / view.span;
  const left = layout.left + (lane.begin[kernel.bar.index] - view.begin) * perNs;
  const right = left + Math.max(3, lane.length[kernel.bar.index] * perNs);
  context.save();
  context.beginPath();
  context.rect(layout.left - 2, 0, layout.right - layout.left + 4, layout.height);
  context.clip();
  paint(Math.max(left, layout.left - 9), Math.min(right, layout.right + 9), top, top + height);
  context.restore();
}

// Lines from the begin and end of a kernel's bar down to the lanes of its roles, behind all lanes.
function paintKernelEdges(context, run, kernel, view, layout, place, k, palette) {
  atKernelBar(context, run, kernel, view, layout, place.lanes, (left, right, top, bottom) => {
    context.fillStyle = palette.muted;
    for (const x of [left, right]) {
      context.fillRect(Math.round(x) - 0.5, bottom, 1, place.kernels[k].bottom - bottom);
    }
  });
}

function paintKernelFrame(context, run, kernel, view, layout, place, palette) {
  atKernelBar(context, run, kernel, view, layout, place.lanes, (left, right, top, bottom) => {
    context.strokeStyle = palette.ink;
    context.lineWidth = 1.5;
    context.strokeRect(left, top - 1, right - left, bottom - top + 2);
  });
}

function paintLaneLabel(context, lane, layout, place, palette) {
  const baseline = layout.narrow ? place.label + 13 : place.top + place.height / 2 + 4;
  const right = layout.narrow ? layout.right : layout.left - 12;
  context.font = palette.font;
  context.textAlign = 'right';
  context.fillStyle = palette.muted;
  const share = lane.count > 0 ? formatShare(lane.share) : NONE;
  context.fillText(share, right, baseline);
  const room = right - context.measureText(share).width - (layout.narrow ? layout.left : 0) - 10;
  context.textAlign = 'left';
  context.fillStyle = palette.ink;
  const named = lane.stage === lane.engine ? lane.stage : `${lane.stage} · ${lane.engine}`;
  context.fillText(fitted(context, named, room), layout.narrow ? layout.left : 0, baseline);
}

// Paints in device pixels. Returns the number of rectangles.
function paintRow(context, lane, row, view, area, palette, scratch) {
  const tones = palette.engines.get(lane.engine);
  const numbers = [];
  let painted = 0;
  mergeRow(row, view, area.columns, scratch, (i, left, right) => {
    const from = Math.max(0, Math.round(left)), to = Math.min(area.columns, Math.round(right));
    // The tiles of a block may be all odd or all even, so its bars alternate by position.
    const tone = tones[Number(lane.kernel ? i : lane.items[i]) % 2 ? 1 : 0];
    context.fillStyle = tone.colour;
    context.fillRect(area.left + from, area.top, to - from, area.height);
    const roomy = to - from >= NUMBER_WIDTH * area.ratio && area.height >= NUMBER_HEIGHT * area.ratio;
    if (roomy) numbers.push([i, from, to, tone.ink]);
    ++painted;
  }, (left, right, share) => {
    context.fillStyle = tones[0].colour;
    context.globalAlpha = share;
    context.fillRect(area.left + left, area.top, right - left, area.height);
    context.globalAlpha = 1;
    ++painted;
  });
  context.textAlign = 'center';
  for (const [i, from, to, ink] of numbers) {
    context.fillStyle = ink;
    context.fillText(fitted(context, text(lane.items[i]), to - from - 6 * area.ratio),
      area.left + (from + to) / 2, area.top + area.height / 2 + 4 * area.ratio);
  }
  return painted;
}

// Paints everything. Returns the number of rectangles that the intervals needed.
function paintTimeline(canvas, runs, view, layout, palette) {
  const { context, ratio } = blankCanvas(canvas, layout);
  paintAxis(context, layout, view, palette);
  const columns = Math.max(1, Math.round((layout.right - layout.left) * ratio));
  const scratch = new Float32Array(columns);
  let painted = 0;
  runs.forEach((run, r) => {
    const place = layout.runs[r];
    paintRunTitle(context, run, layout, place, palette);
    run.kernels.forEach((kernel, k) => {
      paintKernelEdges(context, run, kernel, view, layout, place, k, palette);
      paintKernelTitle(context, kernel, layout, place.kernels[k], palette);
    });
    // The background is as long as the run, which shows that a shorter run is shorter.
    const toX = (time) => layout.left + Math.min(1, Math.max(0, (time - view.begin) / view.span)) *
                                        (layout.right - layout.left);
    run.lanes.forEach((lane, i) => {
      const at = place.lanes[i];
      paintLaneLabel(context, lane, layout, at, palette);
      context.fillStyle = palette.track;
      const [from, to] = lane.kernel ? [lane.kernel.begin, lane.kernel.end] : [0, run.end];
      context.fillRect(toX(from), at.top, toX(to) - toX(from), at.height);
      context.save();
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.font = palette.font.replace('12px', `${12 * ratio}px`);
      lane.rows.forEach((row, number) => {
        const { top: upper, height } = rowPlace(at, number);
        const top = Math.round(upper * ratio), bottom = Math.round((upper + height) * ratio);
        painted += paintRow(context, lane, row, view, { ratio, columns, top, height: bottom - top,
          left: Math.round(layout.left * ratio) }, palette, scratch);
      });
      context.restore();
    });
    run.kernels.forEach((kernel) =>
      paintKernelFrame(context, run, kernel, view, layout, place, palette));
  });
  return painted;
}

// The vertical line at the pointer, and frames around an interval and around the same item in other
// lanes. For a tile, only lanes of the same block of the same kernel count.
function paintOverlay(canvas, runs, view, layout, palette, { pointer, shown }) {
  const { context } = blankCanvas(canvas, layout);
  context.beginPath();
  context.rect(layout.left - 2, 0, layout.right - layout.left + 4, layout.height);
  context.clip();
  const toX = (time) => layout.left + (time - view.begin) / view.span * (layout.right - layout.left);
  if (pointer !== null) {
    context.fillStyle = palette.muted;
    context.fillRect(Math.round(pointer), AXIS_HEIGHT - 6, 1, layout.height - AXIS_HEIGHT);
  }
  if (!shown) return;
  const within = runs[shown.run].lanes[shown.lane];
  const item = within.items[shown.index];
  runs[shown.run].lanes.forEach((lane, l) => {
    if (lane.kernel !== within.kernel || lane.block !== within.block) return;
    const index = l === shown.lane ? shown.index : lane.items.indexOf(item);
    if (index < 0) return;
    const left = toX(lane.begin[index]);
    const width = Math.max(2, lane.length[index] / view.span * (layout.right - layout.left));
    const place = rowPlace(layout.runs[shown.run].lanes[l], lane.row[index]);
    context.strokeStyle = palette.ink;
    context.lineWidth = l === shown.lane ? 2 : 1;
    context.strokeRect(Math.max(left, layout.left - 4), place.top - 1,
      Math.min(width, layout.right + 8 - Math.max(left, layout.left - 4)), place.height + 2);
  });
}
