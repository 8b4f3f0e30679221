"""Watches for PyTorch inside a job. Python imports this module at start, because its folder is on PYTHONPATH.

It imports nothing but the standard library. Another `sitecustomize` of the environment is run afterwards, and the
folder leaves `sys.path`, so that the job can't see it. A job that never imports PyTorch is left alone.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
_WATCHED = {"torch.optim.optimizer": "watch_optimizers", "torch.amp.grad_scaler": "watch_grad_scaler"}


class _CallAfter:
    """A loader that calls a function of the recorder after it has loaded a module."""

    def __init__(self, loader, then):
        self._loader, self._then = loader, then

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            getattr(_recorder(), self._then)(module)
        except Exception as error:  # noqa: BLE001 - the job must run in any case
            sys.stderr.write(f"wirecost: the job isn't measured: {type(error).__name__}: {error}\n")


class _Finder:
    """Finds the modules that are watched, and leaves all others to the finders behind it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _WATCHED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallAfter(spec.loader, _WATCHED[name])  # type: ignore[assignment] - importlib.abc is slow
        return spec


def _recorder():
    """Returns the module that records, which is loaded once."""
    name = "_wirecost_recorder"
    if name not in sys.modules:
        loader = SourceFileLoader(name, os.path.join(_HERE, "recorder.py"))  # noqa: PTH118
        module = type(sys)(name)
        module.__file__ = loader.path
        module.__loader__ = loader
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _run_other():
    """Runs the `sitecustomize` that Python would have imported without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("WIRECOST_JOB"):
    sys.meta_path.insert(0, _Finder)
_run_other()
