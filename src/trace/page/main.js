// Puts the report's sections on the page.

function readData() {
  try {
    return JSON.parse(document.getElementById('data').textContent) ?? {};
  } catch {
    return { title: 'This report holds no readable data' };
  }
}

const data = readData();
const theme = makeTheme(document.getElementById('theme'));
const timelines = [];

const DRAW = {
  facts: drawFacts,
  table: drawTable,
  plot: drawPlot,
  roofline: drawRoofline,
  timelines(section) {
    if (list(section.runs).length === 0) return nothingMeasured();
    const figure = new TimelineFigure(section, theme, timelines.length);
    timelines.push(figure);
    return figure.node;
  },
};

function drawSection(section) {
  const draw = Object.hasOwn(DRAW, text(section?.type)) ? DRAW[section.type] : null;
  if (!draw) return element('p', { class: 'note' }, 'This page cannot show this section.');
  return element('section', {},
    section.title ? element('h2', {}, text(section.title)) : null,
    section.note ? element('p', { class: 'note' }, text(section.note)) : null,
    draw(section));
}

document.getElementById('title').textContent = text(data.title);
document.getElementById('made').textContent =
  [['version', data.made?.version], ['commit', data.made?.commit], ['', data.made?.date]]
    .filter(([, value]) => value).map(([name, value]) => `${name} ${value}`.trim()).join(' · ');
document.getElementById('main').append(...list(data.sections).map(drawSection));

// Access for tests to the first timelines on the page.
window.penstockPage = {
  bars: (run) => timelines[0].runs[run].lanes.reduce((sum, lane) => sum + lane.count, 0),
  view: () => ({ begin_ns: timelines[0].view.begin, end_ns: timelines[0].view.end }),
  drawn: () => timelines[0].painted,
  timeAt: (x) => timelines[0].timeAt(x),
  lane(run, lane) {
    const { left, right, runs } = timelines[0].layout;
    const { top, height } = runs[run].lanes[lane];
    return { left, right, top, height };
  },
  bar(run, lane, index) {
    const { begin, length, row } = timelines[0].runs[run].lanes[lane];
    const { layout, view } = timelines[0];
    const { top, height } = rowPlace(layout.runs[run].lanes[lane], row[index]);
    const perNs = (layout.right - layout.left) / view.span;
    const left = layout.left + (begin[index] - view.begin) * perNs;
    return { left, right: left + length[index] * perNs, top, bottom: top + height };
  },
  get redrawMs() { return timelines[0].redrawMs; },
  redraw: () => timelines[0].paint(),
};
