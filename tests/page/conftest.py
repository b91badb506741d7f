import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from screen import HEIGHT, WIDTH, Screen

ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--disable-background-networking", f"--window-size={WIDTH},{HEIGHT}"]


# scripts/setup.sh writes it where the system has no package of a browser, and only there.
NO_BROWSER = Path(__file__).parents[2] / "build/no_browser.txt"


def find(what, *names):
    found = next(filter(None, map(shutil.which, names)), None)
    if not found and NO_BROWSER.exists():
        pytest.skip(f"no {what}: {NO_BROWSER.read_text().strip()}")
    if not found:
        pytest.fail(f"no {what}: the page's tests need one; scripts/setup.sh installs it",
                    pytrace=False)
    return found


@pytest.fixture(scope="session")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = find("browser", "chromium", "chromium-browser", "google-chrome")
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Named, so that nothing is looked for on the network.
    driver = webdriver.Chrome(options, Service(find("browser driver", "chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def screen(driver, tmp_path):
    """A screen on which nothing may complain: no error, no warning, whatever a test does there."""
    yield Screen(driver, tmp_path)
    assert driver.get_log("browser") == []
