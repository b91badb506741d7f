// Light and dark colours, which page.css defines, and their values for drawing on a canvas.

const ENGINES = ['disk', 'host', 'upload', 'download', 'device copy', 'compute'];
const ROLES = { loader: '--engine-spare-2', storer: '--engine-spare-3' }; // compute has the engine's colour
const SPARE_COLOURS = 4; // for engines and roles that this page does not know

// One token per engine: its own, or one of the spares in the order of appearance.
function engineTokens(engines) {
  const tokens = new Map();
  let spare = 0;
  for (const engine of engines) {
    if (tokens.has(engine)) continue;
    tokens.set(engine, ENGINES.includes(engine) ? `--engine-${engine.replace(' ', '-')}`
      : Object.hasOwn(ROLES, engine) ? ROLES[engine]
        : `--engine-spare-${1 + (spare++ % SPARE_COLOURS)}`);
  }
  return tokens;
}

function makeTheme(button) {
  const root = document.documentElement;
  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  const listeners = [];
  const probe = element('span', { hidden: '' });
  document.body.append(probe);

  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? 'dark' : 'light')) === 'dark';
  const changed = () => {
    button.textContent = isDark() ? 'Light colours' : 'Dark colours';
    for (const listener of listeners) listener();
  };
  const set = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    changed();
  };

  button.addEventListener('click', () => set(isDark() ? 'light' : 'dark'));
  prefersDark.addEventListener('change', changed);
  let chosen;
  addEventListener('beforeprint', () => { chosen = root.dataset.theme; set('light'); });
  addEventListener('afterprint', () => set(chosen));
  changed();

  return {
    onChange: (listener) => listeners.push(listener),
    colour(token) {
      probe.style.color = `var(${token})`;
      return getComputedStyle(probe).color;
    },
  };
}

const channels = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);

// A mix of two colours, with `share` of the first.
function mixed(one, other, share) {
  const others = channels(other);
  return `rgb(${channels(one).map((part, i) => Math.round(part * share + others[i] * (1 - share)))})`;
}

// Black or white, whichever reads better on the colour: one of them always passes AA.
function inkOn(colour) {
  const [red, green, blue] = channels(colour).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000' : '#fff';
}
