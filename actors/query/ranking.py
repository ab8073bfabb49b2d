"""How this user's questions are ranked: configuration, and what `recalld eval calibrate` found."""

from __future__ import annotations

import logging

import msgspec

from ...memory.recall.params import Model, Params, params_from
from ...protocol.config import Config, ConfigError
from ...protocol.runtime import Paths

CALIBRATION = "calibration.json"
"""In the data folder, written by `recalld eval calibrate`."""

log = logging.getLogger("recalld.query")


def ranking_params(config: Config, paths: Paths | None = None) -> Params:
    """
    The ranking parameters of a configuration, and the confidence model that `recalld eval calibrate` fitted, if it did.

    Raises ConfigError naming the key that is wrong. A calibration that cannot be read is left out, and the log says so.
    """
    try:
        params = params_from(config.recall.ranking)
    except msgspec.ValidationError as error:
        raise ConfigError(f"config.toml, [recall.ranking]: {error}") from None
    model = None
    try:
        if paths is not None:
            model = msgspec.json.decode((paths.data / CALIBRATION).read_bytes(), type=Model)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s cannot be read: %s; using the packaged confidence model", CALIBRATION, error)
    return msgspec.structs.replace(params, know_threshold=config.recall.know_threshold, model=model)
