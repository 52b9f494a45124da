"""What a user would start as processes, run in this process: snippets and commands of documents, trials of the lab.

An import of torch costs a process more than most of what tests ask of it. That processes work, too, is tested where
processes are the subject: tests/test_commands.py, tests/lab/test_lab_sweep.py.
"""

import contextlib
import io
import itertools
import shlex
import sys
import types
import warnings

import pytest

COUNT = itertools.count()


def run_snippet(body):
    """Run a snippet as a module of its own; the lines that it printed."""
    module = types.ModuleType(f"snippet_{next(COUNT)}")
    sys.modules[module.__name__] = module
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(body, module.__name__, "exec"), module.__dict__)
    return printed.getvalue().splitlines()


def run_command(line, smaller, code=0):
    """Run a `milepost ...` line, with the options that ``smaller`` adds to lines that begin with its keys."""
    from typer.testing import CliRunner

    from milepost.cli import app

    more = next((options for start, options in smaller.items() if line.startswith(start)), "")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, [*shlex.split(line)[1:], *shlex.split(more)])
    assert done.exit_code == code, f"{line}: {done.output[-2000:]} {done.exception!r}"


@contextlib.contextmanager
def trials_here():
    """Trials of the lab run one after another, here. The trainings themselves are the real ones."""
    from milepost.lab.sweep import processes
    from milepost.lab.sweep.modalities import RUNNERS

    def run_all(plan, todo, out, workers, tell):
        run = RUNNERS[type(plan)]
        for trial in todo:
            yield trial, run(plan, trial, out / "trials" / trial.key, lambda news, trial=trial: tell(trial, news))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "run_all", run_all)
        yield
