// The timelines of several runs below each other on one time axis: state, painting and details.

const BUTTON_ZOOM = 1.5;
const NARROW_BAR_PIXELS = 4, KERNEL_MARGIN = 0.01;
const POINTER_HELP = 'Scroll or pinch to zoom, drag to pan, click an interval to keep its details below. ';

class TimelineFigure {
  constructor(section, theme, number) {
    this.runs = list(section.runs).map(decodeRun);
    this.view = new TimeWindow(Math.min(0, ...this.runs.map((run) => run.begin)),
                               Math.max(0, ...this.runs.map((run) => run.end)));
    this.engines = engineTokens(this.runs.flatMap((run) => run.lanes.map((lane) => lane.engine)));
    this.theme = theme;
    this.pointer = null; // where the vertical line is
    this.hovered = null;
    this.chosen = null;
    this.painted = 0;
    this.redrawMs = 0;
    this.build(text(section.title) || 'timelines', `help-${number}`);

    listenToPointers(this.over, this);
    listenToWheel(this.over, this);
    listenToKeys(this.over, this);
    onWidth(this.stage, (width) => {
      this.layout = layOut(this.runs, width);
      this.redraw();
    });
    addEventListener('resize', () => this.redraw()); // the browser's own zoom changes the pixels
    theme.onChange(() => {
      this.palette = null;
      this.paint(); // at once: printing does not wait for the next frame
    });
  }

  build(title, helpId) {
    const help = element('p', { class: 'help', id: helpId }, POINTER_HELP,
      element('span', { class: 'keys' }, KEY_HELP), this.hasKernels() ? KERNEL_HELP : null);
    this.base = element('canvas', { 'aria-hidden': 'true' });
    this.over = element('canvas', { class: 'over', tabindex: '0', role: 'application',
      'aria-roledescription': 'timeline', 'aria-label': `${title}: ${this.runs.map((run) =>
        [run.name, formatTime(run.total), lostText(run)].filter(Boolean).join(', ')).join('; ')}`,
      'aria-describedby': helpId });
    this.tip = element('div', { class: 'tip', hidden: '' });
    this.stage = element('div', { class: 'stage' }, this.base, this.over, this.tip);
    this.range = element('span', { class: 'range' });
    this.line = element('p', { class: 'line-of-details', 'aria-live': 'polite' });
    const button = (label, name, act) => {
      const made = element('button',
        { type: 'button', class: 'button', 'aria-label': name, title: name }, label);
      made.addEventListener('click', () => { act(); this.redraw(); });
      return made;
    };
    this.node = element('div', { class: 'figure timeline' },
      element('div', { class: 'bar-of-tools' },
        element('ul', { class: 'legend' }, [...this.engines].map(([engine, token]) => {
          const swatch = element('span', { class: 'swatch' });
          swatch.style.background = `var(${token})`;
          return element('li', {}, swatch, engine);
        })),
        element('div', { class: 'buttons' }, this.range,
          button('+', 'zoom in', () => this.view.zoom(BUTTON_ZOOM)),
          button('−', 'zoom out', () => this.view.zoom(1 / BUTTON_ZOOM)),
          button('all', 'show the whole run', () => this.view.whole()))),
      kernelButtons(this.runs, (kernel) => this.into(kernel)),
      this.lostRecords(), this.stage, this.line, help, this.alternative(),
      this.hasKernels() ? rolesTable(this.runs) : null);
  }

  // A canvas is easily overlooked: what makes its times wrong is also written above it.
  lostRecords() {
    const incomplete = this.runs.filter((run) => run.lost > 0);
    return incomplete.length === 0 ? null : element('p', { class: 'note lost-records' },
      `Incomplete: ${incomplete.map((run) => `${run.name}, ${lostText(run)}`).join('; ')}. Busy ` +
      'times are too short and gaps too long.');
  }

  hasKernels() { return this.runs.some((run) => run.kernels.length > 0); }

  alternative() {
    return textAlternative('Timelines as a table',
      [{ name: 'run' }, { name: 'stage' }, { name: 'engine' }, { name: 'intervals', numeric: true },
       { name: 'busy', numeric: true }, { name: 'of the run', share: true }],
      this.runs.flatMap((run) => run.engines.map((lane) => [run.name, lane.stage, lane.engine,
        lane.count, formatTime(lane.busy), lane.count > 0 ? lane.share : null])));
  }

  // Painting, at most once per frame.

  redraw() {
    this.waiting ??= requestAnimationFrame(() => this.paint());
  }

  redrawOver() {
    this.waitingOver ??= requestAnimationFrame(() => this.paintOver());
  }

  paint() {
    cancelAnimationFrame(this.waiting);
    this.waiting = undefined;
    if (!this.layout) return;
    const started = performance.now();
    this.palette ??= readPalette(this.theme, this.engines, getComputedStyle(this.stage).fontFamily);
    this.painted = paintTimeline(this.base, this.runs, this.view, this.layout, this.palette);
    this.redrawMs = performance.now() - started;
    this.range.textContent = `${this.view.begin === 0 ? 0 : formatTime(this.view.begin)} to ` +
                             formatTime(this.view.end);
    this.paintOver();
  }

  paintOver() {
    cancelAnimationFrame(this.waitingOver);
    this.waitingOver = undefined;
    if (this.palette) {
      paintOverlay(this.over, this.runs, this.view, this.layout, this.palette,
        { pointer: this.pointer, shown: this.hovered ?? this.chosen });
    }
  }

  // Places and times.

  timeAt(x) {
    const { left, right } = this.layout;
    return this.view.begin + (x - left) / (right - left) * this.view.span;
  }

  perPixel() { return this.view.span / (this.layout.right - this.layout.left); }

  find(x, y) {
    for (const [run, place] of this.layout.runs.entries()) {
      for (const [lane, { top, height, rowHeight }] of place.lanes.entries()) {
        if (y < top - 2 || y > top + height + 2) continue;
        const { rows } = this.runs[run].lanes[lane];
        const row = Math.min(Math.max(0, Math.floor((y - top) / rowHeight)), rows.length - 1);
        const linked = narrowKernelBar(this.runs[run], lane, row, this.timeAt(x),
          NARROW_BAR_PIXELS * this.perPixel());
        const index = linked?.index ?? intervalAt(rows[row], this.timeAt(x), 2 * this.perPixel());
        if (index >= 0) return { run, lane, index };
      }
    }
    return null;
  }

  details({ run, lane, index }) {
    const within = this.runs[run].lanes[lane];
    const times = [['begin', formatTime(within.begin[index])],
                   ['length', formatTime(within.length[index])]];
    if (within.kernel) {
      return [['role', within.engine], ['tile', text(within.items[index])], ...times,
              ['block', within.block], ['SM', within.sm], ['inside', within.kernel.name]];
    }
    return [['stage', within.stage], ['item', text(within.items[index])], ...times,
            ['engine', within.engine]];
  }

  // Actions of the gestures.

  isWhole() { return this.view.isWhole; }

  zoom(factor, x) {
    this.view.zoom(factor, this.timeAt(x));
    this.redraw();
  }

  pan(pixels) {
    this.view.pan(pixels * this.perPixel());
    this.redraw();
  }

  point(x, y) {
    const inside = x >= this.layout.left && x <= this.layout.right;
    this.pointer = inside ? x : null;
    this.hovered = inside ? this.find(x, y) : null;
    this.over.classList.toggle('link', Boolean(kernelAt(this.runs, this.hovered)));
    this.showTip(x, y);
    this.redrawOver();
  }

  leave() {
    this.pointer = this.hovered = null;
    this.over.classList.remove('link');
    this.tip.hidden = true;
    this.redrawOver();
  }

  choose(x, y) {
    this.pick(this.find(x, y));
    this.enter();
  }

  // Zooms into the chosen interval if it is a kernel whose roles are known.
  enter() {
    const kernel = kernelAt(this.runs, this.chosen);
    if (kernel) this.into(kernel);
  }

  into(kernel) {
    const run = this.runs.find((one) => one.kernels.includes(kernel));
    let [begin, end] = [kernel.begin, kernel.end];
    if (kernel.bar) {
      const { begin: begins, length } = run.lanes[kernel.bar.lane];
      begin = Math.min(begin, begins[kernel.bar.index]);
      end = Math.max(end, begins[kernel.bar.index] + length[kernel.bar.index]);
    }
    const margin = (end - begin) * KERNEL_MARGIN;
    this.view.show(begin - margin, end + margin);
    this.line.textContent = `${run.name}, inside ${kernel.name}: ${kernel.lanes.length} lanes of ` +
                            `roles, ${alignmentText(kernel)}`;
    this.redraw();
  }

  showTip(x, y) {
    this.tip.hidden = !this.hovered;
    if (!this.hovered) return;
    const within = this.runs[this.hovered.run].lanes[this.hovered.lane];
    const near = this.perPixel();
    const row = within.rows[within.row[this.hovered.index]];
    const [from, to] = touching(row, this.timeAt(x) - near, this.timeAt(x) + near);
    const rows = this.details(this.hovered);
    if (to - from > 3) rows.push(['here', `${to - from} intervals`]);
    const kernel = kernelAt(this.runs, this.hovered);
    if (kernel) rows.push(['inside', `${kernel.lanes.length} lanes of roles`]);
    this.tip.replaceChildren(...rows.flatMap(([name, value]) =>
      [element('span', {}, name), element('b', {}, value)]));
    const { width } = this.tip.getBoundingClientRect();
    const left = x + 16 + width > this.layout.width ? x - 16 - width : x + 16;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  // Keeps an interval's details visible, in a sentence that screen readers read when it changes.
  pick(chosen) {
    this.chosen = chosen;
    this.line.textContent = chosen ? this.sentence(chosen) : '';
    this.redrawOver();
  }

  sentence({ run, lane, index }) {
    const within = this.runs[run].lanes[lane];
    const name = within.stage === within.engine ? within.stage : `${within.stage} (${within.engine})`;
    const what = within.kernel
      ? `inside ${within.kernel.name}, ${within.stage}, ${within.engine}: tile` : `${name}: item`;
    return `${this.runs[run].name}, ${what} ${text(within.items[index])} begins at ` +
      `${formatTime(within.begin[index])} and takes ${formatTime(within.length[index])} ` +
      `(${index + 1} of ${within.count})`;
  }
}
