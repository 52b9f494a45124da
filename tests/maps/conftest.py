"""The same seed before every test, so that what fails once fails again."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(21)
