// Painting a timeline: the lanes on one canvas, and what follows the pointer on another above it,
// so that moving the pointer never paints the lanes again.

const AXIS_HEIGHT = 30, RUN_HEIGHT = 34, GUTTER = 196, MARGIN = 10;
const NARROW = 620; // below this the lanes' names stand above them, not beside them
const ODD_TONE = 0.72; // neighbours alternate, so that they can be told apart without a gap between
const NUMBER_WIDTH = 26;

// Where everything is, in CSS pixels.
function layOut(runs, width) {
  const narrow = width < NARROW;
  const lane = narrow ? { height: 42, bar: 20, top: 18 } : { height: 27, bar: 20, top: 3 };
  const left = narrow ? MARGIN : GUTTER;
  let top = AXIS_HEIGHT;
  const placed = runs.map((run) => {
    const at = top;
    const lanes = run.lanes.map((one, i) => ({ label: at + RUN_HEIGHT + i * lane.height,
      top: at + RUN_HEIGHT + i * lane.height + lane.top, height: lane.bar }));
    top += RUN_HEIGHT + lanes.length * lane.height + 6;
    return { top: at, lanes };
  });
  return { narrow, left, width, right: Math.max(left + 1, width - MARGIN), height: top + 4,
           laneHeight: lane.height, runs: placed };
}

// Empty, of the right size in device pixels, measured in CSS pixels.
function blankCanvas(canvas, { width, height }) {
  const ratio = devicePixelRatio || 1;
  const wide = Math.round(width * ratio), high = Math.round(height * ratio);
  if (canvas.width !== wide) canvas.width = wide; // setting it, even to the same, makes a new image
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
  // The title stands on the grid; its own ground keeps it readable.
  context.font = palette.font;
  const total = run.total > 0 ? formatTime(run.total) : 'nothing recorded';
  const all = wide + 12 + context.measureText(total).width;
  context.fillStyle = palette.surface;
  context.fillRect(x, place.top + 6, all + 6, RUN_HEIGHT - 12);
  context.fillStyle = palette.muted;
  context.fillText(total, x + wide + 10, y);
  context.font = palette.bold;
  context.fillStyle = palette.ink;
  context.fillText(name, x, y);
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

// Paints in device pixels: a column is what the screen can show. Returns the rectangles painted.
function paintLane(context, lane, view, area, palette, scratch) {
  const tones = palette.engines.get(lane.engine);
  const numbers = [];
  let painted = 0;
  mergeLane(lane, view, area.columns, scratch, (i, left, right) => {
    const from = Math.max(0, Math.round(left)), to = Math.min(area.columns, Math.round(right));
    const tone = tones[Number(lane.items[i]) % 2 ? 1 : 0];
    context.fillStyle = tone.colour;
    context.fillRect(area.left + from, area.top, to - from, area.height);
    if (to - from >= NUMBER_WIDTH * area.ratio) numbers.push([i, from, to, tone.ink]);
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

// Paints all of it and returns how many rectangles the intervals took.
function paintTimeline(canvas, runs, view, layout, palette) {
  const { context, ratio } = blankCanvas(canvas, layout);
  paintAxis(context, layout, view, palette);
  const columns = Math.max(1, Math.round((layout.right - layout.left) * ratio));
  const scratch = new Float32Array(columns);
  let painted = 0;
  runs.forEach((run, r) => {
    const place = layout.runs[r];
    paintRunTitle(context, run, layout, place, palette);
    // The ground of a run is as long as the run, so that a shorter one is seen to be shorter.
    const toX = (time) => layout.left + Math.min(1, Math.max(0, (time - view.begin) / view.span)) *
                                        (layout.right - layout.left);
    run.lanes.forEach((lane, i) => {
      const at = place.lanes[i];
      paintLaneLabel(context, lane, layout, at, palette);
      context.fillStyle = palette.track;
      context.fillRect(toX(0), at.top, toX(run.end) - toX(0), at.height);
      context.save();
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.font = palette.font.replace('12px', `${12 * ratio}px`);
      painted += paintLane(context, lane, view, { ratio, columns, left: Math.round(layout.left * ratio),
        top: Math.round(at.top * ratio), height: Math.round(at.height * ratio) }, palette, scratch);
      context.restore();
    });
  });
  return painted;
}

// The hair line under the pointer, and frames around an interval and its item in the other lanes.
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
  const item = runs[shown.run].lanes[shown.lane].items[shown.index];
  runs[shown.run].lanes.forEach((lane, l) => {
    const index = l === shown.lane ? shown.index : lane.items.indexOf(item);
    if (index < 0) return;
    const left = toX(lane.begin[index]);
    const width = Math.max(2, lane.length[index] / view.span * (layout.right - layout.left));
    const place = layout.runs[shown.run].lanes[l];
    context.strokeStyle = palette.ink;
    context.lineWidth = l === shown.lane ? 2 : 1;
    context.strokeRect(Math.max(left, layout.left - 4), place.top - 1,
      Math.min(width, layout.right + 8 - Math.max(left, layout.left - 4)), place.height + 2);
  });
}
