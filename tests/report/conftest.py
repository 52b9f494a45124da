"""The browser that pages are opened in."""

import shutil

import pytest
from playwright.sync_api import sync_playwright


@pytest.fixture(scope="session")
def chromium():
    found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("these tests open pages in a browser, and found none: install Chromium (Debian: `apt-get install chromium`) or Google Chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
