// Wheel, drag, pinch and tap on a timeline. They call zoom(factor, x), pan(pixels), point(x, y),
// leave() and choose(x, y) of `timeline`, all in CSS pixels of the canvas.

const TAP_PIXELS = 4;
const SCROLLING_MS = 250;

function listenToPointers(canvas, timeline) {
  const down = new Map(); // pointers that are down, by id
  let moved = 0, spread = 0, middle = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const measure = () => {
    const xs = [...down.values()].map(([x]) => x);
    middle = xs.reduce((sum, x) => sum + x, 0) / xs.length;
    const [[x1, y1], [x2, y2]] = down.size > 1 ? [...down.values()] : [[0, 0], [0, 0]];
    spread = Math.hypot(x2 - x1, y2 - y1);
  };

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    if (down.size === 0) moved = 0;
    down.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    measure();
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = place(event);
    if (!down.has(event.pointerId)) {
      if (event.pointerType !== 'touch') timeline.point(x, y);
      return;
    }
    const [wasMiddle, wasSpread] = [middle, spread];
    down.set(event.pointerId, [x, y]);
    measure();
    moved += Math.abs(middle - wasMiddle) + Math.abs(spread - wasSpread);
    if (moved < TAP_PIXELS) return;
    canvas.classList.add('dragged');
    timeline.leave();
    // Zoom first: the whole run cannot be panned.
    if (wasSpread > 0 && spread > 0) timeline.zoom(spread / wasSpread, wasMiddle);
    timeline.pan(wasMiddle - middle);
  });
  const lift = (event) => {
    if (!down.delete(event.pointerId)) return;
    if (down.size > 0) measure();
    else canvas.classList.remove('dragged');
    if (event.type === 'pointerup' && down.size === 0 && moved < TAP_PIXELS) {
      timeline.choose(...place(event));
    }
  };
  canvas.addEventListener('pointerup', lift);
  canvas.addEventListener('pointercancel', lift);
  canvas.addEventListener('pointerleave', () => timeline.leave());
}

// The wheel zooms; sideways it pans. If the page is being scrolled and the timeline comes under the
// pointer, the page keeps scrolling; it also scrolls if the timeline cannot zoom out further.
function listenToWheel(canvas, timeline) {
  let scrolled = -Infinity;
  addEventListener('scroll', () => { scrolled = performance.now(); }, { passive: true });
  canvas.addEventListener('wheel', (event) => {
    const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    const zooms = !event.shiftKey && Math.abs(event.deltaY) >= Math.abs(event.deltaX);
    if (zooms && event.deltaY > 0 && timeline.isWhole()) return;
    if (!event.ctrlKey && performance.now() - scrolled < SCROLLING_MS) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (zooms) timeline.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), x);
    else timeline.pan(sideways * lines);
  }, { passive: false });
}
