"""The Hub's clients of this process, connected to the stand-in, or to nothing."""

import importlib
import os
import sys
from contextlib import contextmanager

import pytest

from tests.support.loopback_hub import LoopbackHub, client_environment


def read_hub_settings():
    """Let the Hub's clients of this process read the environment again; they look their settings up in `constants`.

    (datasets 5.2 in its `config`.) That makes no difference to which of them are imported already.
    """
    from huggingface_hub import constants, hf_api

    importlib.reload(constants)
    hf_api.api.endpoint = constants.ENDPOINT  # of the functions of the package: `create_repo` is a method of `api`
    loaded = sys.modules.get
    if files := loaded("huggingface_hub.hf_file_system"):
        files.HfFileSystem.clear_instance_cache()
    if config := loaded("datasets.config"):
        importlib.reload(config)
    if transformers_hub := loaded("transformers.utils.hub"):
        transformers_hub._hf_api = None  # 5.23 keeps the one of its first use


@contextmanager
def connected_hub(folder):
    """A `LoopbackHub`, to which the Hub's clients of this process are connected with its write token.

    Caches and login are in `folder`; retries follow at once, two of ours.
    """
    from huggingface_hub.utils import close_session, http_backoff, http_stream_backoff

    with LoopbackHub() as running, pytest.MonkeyPatch.context() as patch:
        environment = client_environment(running, folder)
        gone = os.environ.keys() - environment.keys()
        try:
            for name in gone:
                patch.delenv(name)
            for name, value in environment.items():
                if os.environ.get(name) != value:  # what is as it was is not put back: the test may have set it
                    patch.setenv(name, value)
            patch.setattr("trl_vade.hub.uploading.PATIENCE", (0.0, 0.0))
            patch.setattr("trl_vade.hub.uploading.LONGEST", 0.0)
            for retrying in (http_backoff, http_stream_backoff.__wrapped__):  # no setting says how long they wait
                patch.setitem(retrying.__kwdefaults__, "base_wait_time", 0)
            read_hub_settings()
            if any(name.lower().endswith("_proxy") for name in gone):
                close_session()  # it has the proxies of when it was opened; a new one costs 35 ms
            yield running
        finally:
            patch.undo()
            read_hub_settings()


@contextmanager
def offline():
    """In this context the Hub's clients are told to use no network (HF_HUB_OFFLINE)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        read_hub_settings()
        try:
            yield
        finally:
            patch.undo()
            read_hub_settings()
