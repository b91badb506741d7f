// Keyboard control of a timeline: panning, zooming, and moving from interval to interval.

const KEY_PAN = 0.15, KEY_ZOOM = 1.5;
const KEY_HELP = 'Arrow keys pan, + and − zoom, 0 shows the whole run; [ and ], or Shift with ' +
                 'the arrow keys, move from interval to interval.';

function listenToKeys(canvas, timeline) {
  const { view } = timeline;
  const plain = {
    ArrowLeft: () => view.pan(-KEY_PAN * view.span),
    ArrowRight: () => view.pan(KEY_PAN * view.span),
    '+': () => view.zoom(KEY_ZOOM),
    '=': () => view.zoom(KEY_ZOOM), // + without Shift, on many keyboards
    '-': () => view.zoom(1 / KEY_ZOOM),
    0: () => view.whole(),
    Home: () => view.whole(),
    '[': () => walkTo(timeline, nextInLane(timeline, -1)),
    ']': () => walkTo(timeline, nextInLane(timeline, 1)),
    Enter: () => timeline.enter(),
    Escape: () => timeline.pick(null),
  };
  const shifted = {
    ArrowLeft: plain['['],
    ArrowRight: plain[']'],
    ArrowUp: () => walkTo(timeline, sameTimeInLane(timeline, -1)),
    ArrowDown: () => walkTo(timeline, sameTimeInLane(timeline, 1)),
  };
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey) return;
    const act = (event.shiftKey && shifted[event.key]) || plain[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    timeline.redraw();
  });
}

function walkTo(timeline, chosen) {
  if (!chosen) return;
  const lane = timeline.runs[chosen.run].lanes[chosen.lane];
  timeline.view.reveal(lane.begin[chosen.index], lane.begin[chosen.index] + lane.length[chosen.index]);
  timeline.pick(chosen);
}

// Lanes that have intervals, from top to bottom.
function filledLanes(timeline) {
  return timeline.runs.flatMap((run, r) => run.lanes.flatMap((lane, l) =>
    (lane.count > 0 ? [{ run: r, lane: l, begin: lane.begin }] : [])));
}

// The first interval of a lane that begins at or after a time, or its last.
function fromTime({ run, lane, begin }, time) {
  return { run, lane, index: Math.min(search(begin, time), begin.length - 1) };
}

function nextInLane(timeline, by) {
  const [first] = filledLanes(timeline);
  if (!timeline.chosen) return first ? fromTime(first, timeline.view.begin) : null;
  const { run, lane, index } = timeline.chosen;
  const last = timeline.runs[run].lanes[lane].count - 1;
  return { run, lane, index: Math.min(Math.max(index + by, 0), last) };
}

function sameTimeInLane(timeline, by) {
  const { chosen } = timeline;
  if (!chosen) return nextInLane(timeline, 0);
  const lanes = filledLanes(timeline);
  const here = lanes.findIndex((one) => one.run === chosen.run && one.lane === chosen.lane);
  const next = lanes[here + by];
  return next ? fromTime(next, lanes[here].begin[chosen.index]) : null;
}
