"""Chromium without a screen, a network, or anything remembered; what it said and asked for is kept."""

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1280,800", "--host-resolver-rules=MAP * ~NOTFOUND"),
)
PATIENCE_SECONDS = 20


class Browser:
    """One page at a time."""

    def __init__(self, driver: webdriver.Chrome, downloads: Path) -> None:
        self.driver = driver
        self.downloads = downloads

    def open(self, path: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """The page at `path`, as soon as it can be used, on a screen of that size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})
        self.said(), self.requests()  # of the page before
        self.driver.get(path.as_uri())
        self.until("return document.readyState === 'complete'")

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        """The first true value that the script returns."""
        wait = WebDriverWait(self.driver, PATIENCE_SECONDS, poll_frequency=0.02)
        return wait.until(lambda _: self.run(script, *arguments))

    def find(self, selector: str) -> WebElement:
        """The first element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Of all elements that can be seen."""
        return [
            one.text for one in self.driver.find_elements(By.CSS_SELECTOR, selector) if one.is_displayed()
        ]

    def downloaded(self, name: str) -> list[dict[str, str]]:
        """The rows of a file, as soon as it is there."""
        file = self.downloads / name
        WebDriverWait(self.driver, PATIENCE_SECONDS, poll_frequency=0.02).until(lambda _: file.exists())
        with file.open(newline="") as lines:
            return list(csv.DictReader(lines))

    def said(self) -> list[str]:
        """What stands in the console since last asked, but for what the browser says of itself."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since last asked."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Started, and ended again."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = Options()
        options.binary_location = shutil.which("chromium") or ""
        for argument in (*ARGUMENTS, f"--user-data-dir={folder}/profile"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            downloads = Path(folder) / "downloads"
            driver.execute_cdp_cmd(
                "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
            )
            driver.get("about:blank")
            yield Browser(driver, downloads)
        finally:
            driver.quit()
