"""How many bytes the KV cache of a model takes, read from its config.json. Needs the standard library only.

``read_config(text).total_bytes(context=131_072)``, or ``python -m mha_core.kv_size config.json``.
"""

from mha_core.kv_size.reader import read_config
from mha_core.kv_size.size import KVCacheSize
from mha_core.kv_size.values import ReadError

__all__ = ["KVCacheSize", "ReadError", "read_config"]
