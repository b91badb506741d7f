"""A page in a real browser: what is on it, and hands to use it with."""

import base64
import itertools

from assemble import assemble

WIDTH, HEIGHT = 1280, 900


class Screen:
    def __init__(self, driver, folder):
        self.driver = driver
        self.files = (folder / f"{number}.html" for number in itertools.count())

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def open(self, data, width=WIDTH, height=HEIGHT, ratio=1, mobile=False, media="", **features):
        """Shows a report; features as in prefers_color_scheme="dark"."""
        self.size(width, height, ratio, mobile)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=mobile)
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[
            {"name": name.replace("_", "-"), "value": value}
            for name, value in ({"prefers_color_scheme": "light"} | features).items()])
        file = next(self.files)
        file.write_text(assemble(data))
        self.show(file)
        self.js("document.querySelector('.over')?.scrollIntoView({block: 'center'})")
        self.frames()
        return self

    def open_file(self, file):
        """Shows a page as it is, in light colours."""
        self.size(WIDTH)
        self.cdp("Emulation.setEmulatedMedia", media="", features=[
            {"name": "prefers-color-scheme", "value": "light"}])
        self.show(file)

    def show(self, file):
        self.driver.get(file.as_uri())
        self.frames()

    def whole_page(self):
        """A screenshot of the whole page, as PNG."""
        return self._picture(0, 0, WIDTH, self.js("return document.documentElement.scrollHeight"))

    def element(self, selector):
        """A screenshot of the first element that matches, as PNG."""
        box = self.js("const box = document.querySelector(arguments[0]).getBoundingClientRect();"
                      "return [box.x + scrollX, box.y + scrollY, box.width, box.height]", selector)
        return self._picture(*box)

    def _picture(self, x, y, width, height):
        picture = self.cdp("Page.captureScreenshot", captureBeyondViewport=True,
                           clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})
        return base64.b64decode(picture["data"])

    def size(self, width, height=HEIGHT, ratio=1, mobile=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=ratio, mobile=mobile)

    def resize(self, width):
        self.size(width)
        self.frames()

    def frames(self):
        """Waits until what was asked for is painted."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));")

    # What is on it.

    def view(self):
        seen = self.js("return penstockPage.view()")
        return seen["begin_ns"], seen["end_ns"]

    def lane(self, run, lane):
        """Where a lane's bars may be, in the window's coordinates."""
        return self.js("""
            const lane = penstockPage.lane(...arguments);
            const box = document.querySelector('.over').getBoundingClientRect();
            return {left: box.left + lane.left, right: box.left + lane.right,
                    top: box.top + lane.top, middle: box.top + lane.top + lane.height / 2};""",
                       run, lane)

    def bar(self, run, lane, index):
        """Where an interval's bar is, in the window's coordinates."""
        return self.js("""
            const bar = penstockPage.bar(...arguments);
            const box = document.querySelector('.over').getBoundingClientRect();
            return {left: box.left + bar.left, right: box.left + bar.right,
                    top: box.top + bar.top, bottom: box.top + bar.bottom};""", run, lane, index)

    def at(self, time, run=0, lane=0):
        """The point of a lane that shows a time."""
        place, (begin, end) = self.lane(run, lane), self.view()
        return (place["left"] + (time - begin) / (end - begin) * (place["right"] - place["left"]),
                place["middle"])

    def time_at(self, x):
        place, (begin, end) = self.lane(0, 0), self.view()
        return begin + (x - place["left"]) / (place["right"] - place["left"]) * (end - begin)

    def colour(self, value):
        """A CSS colour as the three numbers of its channels."""
        return self.js("""
            const probe = document.body.appendChild(document.createElement('i'));
            probe.style.color = arguments[0];
            const colour = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
            probe.remove();
            return colour;""", value)

    def engine_colour(self, engine):
        return self.colour(self.js("""
            const entry = [...document.querySelectorAll('.timeline .legend li')]
              .find((one) => one.textContent === arguments[0]);
            return getComputedStyle(entry.querySelector('.swatch')).backgroundColor;""", engine))

    def pixels(self, left, top, width):
        """The colours of one row of the screen, from a screenshot."""
        scroll = self.js("return [scrollX, scrollY]")
        shot = self.cdp("Page.captureScreenshot", clip={
            "x": left + scroll[0], "y": top + scroll[1], "width": width, "height": 1, "scale": 1})
        flat = self.driver.execute_async_script("""
            const [data, done] = arguments, image = new Image();
            image.onload = () => {
              const canvas = document.createElement('canvas');
              [canvas.width, canvas.height] = [image.width, 1];
              const context = canvas.getContext('2d');
              context.drawImage(image, 0, 0);
              done([...context.getImageData(0, 0, image.width, 1).data]);
            };
            image.src = 'data:image/png;base64,' + data;""", shot["data"])
        return [flat[at:at + 3] for at in range(0, len(flat), 4)]

    # Hands.

    def mouse(self, kind, x, y, **more):
        self.cdp("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.frames()

    def wheel(self, x, y, by, **more):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by, **more)
        self.frames()

    def drag(self, x, y, by):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for step in range(1, 6):
            self.mouse("mouseMoved", x + by * step / 5, y, button="left", buttons=1)
        self.mouse("mouseReleased", x + by, y, button="left", clickCount=1)
        self.frames()

    def touch(self, *positions):
        """Fingers down at the first positions, moved through the others, and lifted."""
        for kind, points in zip(["touchStart"] + ["touchMove"] * (len(positions) - 1), positions):
            self.cdp("Input.dispatchTouchEvent", type=kind, touchPoints=[
                {"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(points)])
        self.cdp("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.frames()

    def keys(self, *keys):
        self.driver.find_element("css selector", ".over").send_keys(*keys)
        self.frames()

    def click(self, name):
        self.driver.find_element("css selector", f"[aria-label='{name}']").click()
        self.frames()

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])]"
                       ".map((one) => one.textContent)", selector)
