"""Break the core on purpose, one line at a time, and see which test notices: ``python -m scripts.mutate``.

Each mutation is applied to a copy of the tree, so the working tree is never touched. A mutation that survives is a
missing test; a pattern that no longer occurs exactly once is a mutation that has to follow the code.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("mha_core", "tests", "pyproject.toml")
ATTENTION, TRACE, JOINED = "mha_core/attention.py", "mha_core/trace.py", "mha_core/joined.py"
ROLES, EVIDENCE = "mha_core/analysis/roles.py", "mha_core/analysis/evidence.py"
POOLING, POOLING_COST = "mha_core/analysis/pooling.py", "mha_core/analysis/pooling_cost.py"
ORDERS, RESHAPE, TIMING = (f"mha_core/analysis/{name}.py" for name in ("orders", "reshape", "timing"))
MEASURES, RESIDUAL = "mha_core/analysis/measures.py", "mha_core/analysis/residual.py"
TRANSFORMER = "mha_core/transformer.py"
CACHE, LATENT = "mha_core/kv_cache.py", "mha_core/latent.py"
DECODING, WORK = "mha_core/decoding.py", "mha_core/work.py"
CONFIG, MASKS, TEXT = "mha_core/config.py", "mha_core/masks.py", "mha_core/text.py"
KV_SIZE = "mha_core/kv_size"


@dataclass(frozen=True)
class Mutation:
    """One mistake that a person could make: what it is, where, and the line before and after."""

    name: str
    file: str
    before: str
    after: str


MUTATIONS = (
    Mutation(
        "scores: heads share keys as tile does, not repeat_interleave",
        ATTENTION,
        "    folded = q.reshape(b * g, h // g * n, d_k)\n",
        "    folded = q.unflatten(1, (h // g, g)).transpose(1, 2).reshape(b * g, h // g * n, d_k)\n",
    ),
    Mutation(
        "values: heads share values as tile does, not repeat_interleave",
        ATTENTION,
        "    folded = rounded.reshape(b * g, h // g * n, n_keys)\n",
        "    folded = rounded.unflatten(1, (h // g, g)).transpose(1, 2).reshape(b * g, h // g * n, n_keys)\n",
    ),
    Mutation("kv_head_of: i mod g", CONFIG, "return head // self.heads_per_kv", "return head % self.n_kv_heads"),
    Mutation(
        "shared keys and values: h/g and g swapped",
        TRACE,
        "tensor[:, :, None].expand(-1, -1, heads_per_kv, -1, -1)",
        "tensor.repeat(1, heads_per_kv, 1, 1).unflatten(1, (-1, heads_per_kv))",
    ),
    Mutation(
        "causal: triu for tril",
        MASKS,
        "key_positions[None, :] <= query_positions[:, None]",
        "key_positions[None, :] >= query_positions[:, None]",
    ),
    Mutation(
        "causal: a token does not see itself",
        MASKS,
        "key_positions[None, :] <= query_positions[:, None]",
        "key_positions[None, :] < query_positions[:, None]",
    ),
    Mutation("forward: causal mask dropped", ATTENTION, "is_causal=causal", "is_causal=False"),
    Mutation("window: one too wide", MASKS, "distance < self.width", "distance <= self.width"),
    Mutation("window: one too narrow", MASKS, "distance < self.width", "distance < self.width - 1"),
    Mutation("window: looks ahead", MASKS, "(distance >= 0) & ", ""),
    Mutation("softmax over queries", ATTENTION, "masked.softmax(-1, dtype=dtype)", "masked.softmax(-2, dtype=dtype)"),
    Mutation(
        "softmax over queries in short rows", ATTENTION, ".softmax(-2, dtype=dtype).mT", ".softmax(-1, dtype=dtype).mT"
    ),
    Mutation("short rows left turned", ATTENTION, ".softmax(-2, dtype=dtype).mT", ".softmax(-2, dtype=dtype)"),
    Mutation("softmax over queries in blocks", ATTENTION, "torch.softmax(masked, -1,", "torch.softmax(masked, -2,"),
    Mutation(
        "softmax in half precision", ATTENTION, "torch.promote_types(scores.dtype, torch.float32)", "scores.dtype"
    ),
    Mutation(
        "softmax of float64 in float32",
        ATTENTION,
        "torch.promote_types(scores.dtype, torch.float32)",
        "torch.float32",
    ),
    Mutation(
        "mask after the softmax",
        ATTENTION,
        "return masked.softmax(-1, dtype=dtype)",
        "return torch.where(visible, scores.softmax(-1, dtype=dtype), 0.0)",
    ),
    Mutation(
        "masked cells nearly zero",
        ATTENTION,
        "torch.where(visible, scores, HIDDEN)",
        "torch.where(visible, scores, -9.0)",
    ),
    Mutation(
        "blocks: keys behind the last seen one left as they come",
        ATTENTION,
        "        pattern[..., rows, keys.stop :] = 0.0\n",
        "        pattern[..., rows, keys.stop :] = 0.1\n",
    ),
    Mutation(
        "blocks: keys before the first seen one left as they come",
        ATTENTION,
        "        pattern[..., rows, : keys.start] = 0.0\n",
        "        pattern[..., rows, : keys.start] = 0.1\n",
    ),
    Mutation("blocks: last seen key dropped", ATTENTION, "int(seen[-1]) + 1)", "int(seen[-1]))"),
    Mutation("trace: scale missing", ATTENTION, "beta=0, alpha=scale", "beta=0, alpha=1.0"),
    Mutation("scale: 1 / d_k", CONFIG, "self.head_dim**-0.5", "self.head_dim**-1.0"),
    Mutation("scale: 1 / sqrt(d_model)", CONFIG, "self.head_dim**-0.5", "self.d_model**-0.5"),
    Mutation(
        "forward: fused kernel keeps its own scale",
        ATTENTION,
        "is_causal=causal, scale=self.cfg.scale",
        "is_causal=causal, scale=self.cfg.d_model**-0.5",
    ),
    Mutation(
        "forward: no scale where a mask is given",
        ATTENTION,
        "attn_mask=visible, scale=self.cfg.scale",
        "attn_mask=visible, scale=1.0",
    ),
    Mutation(
        "heads: view without transpose",
        ATTENTION,
        ".view(b, n, -1, self.cfg.head_dim).transpose(1, 2)",
        ".view(b, -1, n, self.cfg.head_dim)",
    ),
    Mutation(
        "heads: numbers dealt out in turn",
        ATTENTION,
        ".view(b, n, -1, self.cfg.head_dim).transpose(1, 2)",
        ".view(b, n, self.cfg.head_dim, -1).permute(0, 3, 1, 2)",
    ),
    Mutation(
        "concat without transpose", ATTENTION, "z.transpose(1, 2).flatten(2)", "z.reshape(z.shape[0], z.shape[2], -1)"
    ),
    Mutation(
        "K and V swapped in training",
        ATTENTION,
        "heads(_product(x, self.W_K)), heads(_product(x, self.W_V))",
        "heads(_product(x, self.W_V)), heads(_product(x, self.W_K))",
    ),
    Mutation("joined: K and V swapped", ATTENTION, "q, k, v = heads(self._joined", "q, v, k = heads(self._joined"),
    Mutation(
        "joined: matrices in another order",
        ATTENTION,
        '"W_K": self.W_K, "W_V": self.W_V',
        '"W_V": self.W_V, "W_K": self.W_K',
    ),
    Mutation(
        "joined: whatever became of the weights",
        ATTENTION,
        " or not self._joined.stands(self):\n            return",
        ":\n            return",
    ),
    Mutation("joined: in training too", ATTENTION, "if torch.is_grad_enabled() or self._joined", "if self._joined"),
    Mutation(
        "joined: never",
        ATTENTION,
        "if torch.is_grad_enabled() or self._joined is None",
        "if True or self._joined is None",
    ),
    Mutation(
        "joined: not again after .to", ATTENTION, "        self._join()\n        return self\n", "        return self\n"
    ),
    Mutation(
        "joined: not again in a copy",
        ATTENTION,
        "super().__setstate__(state)\n        self._join()\n",
        "super().__setstate__(state)\n",
    ),
    Mutation("joined: a new matrix is not seen", JOINED, "layer._modules[self.name] is self.matrix and ", ""),
    Mutation("joined: a new weight is not seen", JOINED, 'now.get("weight") is self.weight', "True"),
    Mutation("joined: a new bias is not seen", JOINED, 'now.get("bias", "elsewhere") is self.bias and ', ""),
    Mutation(
        "joined: a bias put elsewhere is not seen", JOINED, 'now.get("bias", "elsewhere")', 'now.get("bias", self.bias)'
    ),
    Mutation("joined: new memory is not seen", JOINED, " and self.weight.is_set_to(self.rows)", ""),
    Mutation(
        "joined: the same memory read otherwise is not seen",
        JOINED,
        "self.weight.is_set_to(self.rows)",
        "self.weight.data_ptr() == self.rows.data_ptr()",
    ),
    Mutation("joined: only the first part is looked at", JOINED, " and all(part.stands(layer) for part in others)", ""),
    Mutation("joined: biases dropped", JOINED, "torch.cat(biases) if biases else None", "None"),
    Mutation("joined: of different kinds", JOINED, "if kinds or wide", "if wide"),
    Mutation("joined: wide ones in float32 too", JOINED, "if kinds or wide or", "if kinds or"),
    Mutation("joined: without numbers", JOINED, ' or device.type == "meta"', ""),
    Mutation("joined: a block of its own", JOINED, "        matrix.weight.data = rows\n", ""),
    Mutation("mask: all passes share one", ATTENTION, "x.device).clone().expand", "x.device).expand"),
    Mutation(
        "mask: remembered for one length", ATTENTION, "torch.arange(n, device=device)", "torch.arange(7, device=device)"
    ),
    Mutation(
        "forward: W_O dropped",
        ATTENTION,
        "return _product(_concat(_gated(z, head_gate)), self.W_O)",
        "return _concat(_gated(z, head_gate))[..., : self.cfg.d_model]",
    ),
    Mutation(
        "trace: W_O dropped", ATTENTION, "functional.linear(concat, weight, matrix.bias)", "concat[..., : x.shape[-1]]"
    ),
    Mutation(
        "biases dropped",
        ATTENTION,
        "functional.linear(x, matrix.weight, matrix.bias)",
        "functional.linear(x, matrix.weight)",
    ),
    Mutation("rotary: another base", ATTENTION, "vectors.device), self.cfg.rotary_base)", "vectors.device), 10_001.0)"),
    Mutation(
        "rotary: exponent halved", ATTENTION, "dtype=torch.float64) / half)", "dtype=torch.float64) / (2 * half))"
    ),
    Mutation(
        "rotary: turns the other way in one half", ATTENTION, "first * cos - second * sin", "first * cos + second * sin"
    ),
    Mutation(
        "rotary: pairs interleaved",
        ATTENTION,
        "first, second = vectors[..., :half], vectors[..., half:]",
        "first, second = vectors[..., ::2], vectors[..., 1::2]",
    ),
    Mutation(
        "rotary: V turned too in forward",
        ATTENTION,
        "self._rotate(k), v, keep)",
        "self._rotate(k), self._rotate(v), keep)",
    ),
    Mutation(
        "rotary: V turned too in trace",
        ATTENTION,
        "z = _weighted_values(pattern, v)",
        "z = _weighted_values(pattern, self._rotate(v))",
    ),
    Mutation("rotary: left out", ATTENTION, "if self.cfg.rotary_base is None:", "if True:"),
    Mutation(
        "rotary: positions start at 1 for queries",
        ATTENTION,
        "q_rot, k_rot = self._rotate(q)",
        "q_rot, k_rot = self._rotate(q.roll(1, 2)).roll(-1, 2)",
    ),
    Mutation(
        "keep ignored",
        ATTENTION,
        "return visible if keep is None else visible & keep[:, None, :]",
        "return visible",
    ),
    Mutation("keep hides queries, not keys", ATTENTION, "visible & keep[:, None, :]", "visible & keep[:, :, None]"),
    Mutation("keep shows the padding", ATTENTION, "visible & keep[:, None, :]", "visible & ~keep[:, None, :]"),
    Mutation("trace: NaN where nothing is visible", ATTENTION, "        if keep is not None:\n", "        if False:\n"),
    Mutation(
        "forward: whatever the kernel says where nothing is visible",
        ATTENTION,
        "z.masked_fill(~visible.any(-1, keepdim=True), 0.0)",
        "z.masked_fill(~visible.any(-1, keepdim=True), 1.0)",
    ),
    Mutation("head_gate ignored", ATTENTION, "return z if head_gate is None else", "return z if True else"),
    Mutation("head_gate along tokens", ATTENTION, "head_gate.to(z)[..., None, None]", "head_gate.to(z).mean()"),
    Mutation(
        "scores are kept masked",
        ATTENTION,
        '"k_rot": k_rot,\n            "scores": scores,',
        '"k_rot": k_rot,\n            "scores": torch.where(mask[:, None], scores, -1e9),',
    ),
    Mutation(
        "w_o_slice: rows of nn.Linear.weight",
        TRACE,
        "self.W_O[:, head * d_k : (head + 1) * d_k].T",
        "self.W_O[head * d_k : (head + 1) * d_k, :]",
    ),
    Mutation(
        "w_o_slice: heads dealt out in turn",
        TRACE,
        "self.W_O[:, head * d_k : (head + 1) * d_k].T",
        "self.W_O[:, head :: self.cfg.n_heads].T",
    ),
    Mutation(
        "head writes of changed weights are handed out",
        TRACE,
        "if version_of(self.W_O) != self.W_O_version:",
        "if False:",
    ),
    Mutation("arrays can be written to", TRACE, "array.flags.writeable = False", "pass"),
    Mutation(
        "nbytes counts views twice",
        TRACE,
        "return sum(storages.values())",
        "return sum(t.nbytes for t in self._tensors())",
    ),
    Mutation("seeds: W_Q drawn with g in its name", ATTENTION, 'path=("W_Q",)', 'path=("W_Q", cfg.n_kv_heads)'),
    Mutation("seeds: W_K and W_V the same numbers", ATTENTION, 'path=("W_V",)', 'path=("W_K",)'),
    Mutation(
        "seeds: drawn from everybody's generator",
        "mha_core/seeds.py",
        "(-bound, bound, generator=generator)",
        "(-bound, bound)",
    ),
    Mutation(
        "params: W_O's bias counted with h d_k",
        "mha_core/params.py",
        "(q_width + cfg.bias) * cfg.d_model",
        "per_input * q_width",
    ),
    Mutation(
        "transformer: norm left out before attention",
        TRANSFORMER,
        "self.attention(self.attention_norm(stream)",
        "self.attention((stream)",
    ),
    Mutation("transformer: a part replaces the stream", TRANSFORMER, "(before + write).cpu()", "write.cpu()"),
    Mutation("text: look-up minds the case", TEXT, "rows.get(word, rows.get(word.casefold()))", "rows.get(word)"),
    Mutation(
        "text: labels lose their last letter's mark", TEXT, 'unicodedata.category(char).startswith("M")\n', "False\n"
    ),
    Mutation(
        "text: one token over the limit is taken",
        TEXT,
        "if len(spans) > max_tokens:",
        "if len(spans) > max_tokens + 1:",
    ),
    Mutation("text: typed <s> is the start token", TEXT, " and row >= len(SPECIAL)", ""),
    Mutation("importance: the size of the mean", MEASURES, ".abs().sum(1)", ".sum(1).abs()"),
    Mutation(
        "importance: loss summed over a sentence", MEASURES, ".sum(-1) / (rows[:, 1:] != PAD_ROW).sum(-1)", ".sum(-1)"
    ),
    Mutation("without: the head is the only one left", MEASURES, "torch.ones(model.cfg", "1 - torch.ones(model.cfg"),
    Mutation("dwellings: halves swapped", MEASURES, "rows.tensor_split(2)]", "rows.tensor_split(2)[::-1]]"),
    Mutation("dwellings: rows that see few keys count", MEASURES, "rows >= LEAST_VISIBLE - 1", "rows >= 0"),
    Mutation("same word: the row itself counts", MEASURES, ".tril(-1)", ".tril()"),
    Mutation("luck: ties are right when swapped", MEASURES, "(a > b)", "(a >= b)"),
    Mutation("luck: the mean head, not the best", MEASURES, "accuracy.amax(-1)", "accuracy.mean(-1)"),
    Mutation("entropy: padding counts", MEASURES, "(rows != PAD_ROW).float()", "torch.ones(rows.shape)"),
    Mutation("rare: the noun's own row counts", MEASURES, "key + 1 : end", "key:end"),
    Mutation("evidence: made for other weights", EVIDENCE, "if evidence.sha256 != card.sha256:", "if False:"),
    Mutation("evidence: the gates' own sentences", EVIDENCE, "asked.name(name))", "name)"),
    Mutation("evidence: rare and common swapped", EVIDENCE, "[pair.rare for", "[pair.common for"),
    Mutation("roles: one good half is enough", ROLES, "found.worse_half > LEAST_HALF", "found.first > LEAST_HALF"),
    Mutation("roles: one of two conditions is enough", ROLES, "mass >= LEAST_MASS and", "mass >= LEAST_MASS or"),
    Mutation(
        "kv_size: multi_query loses to num_kv_heads",
        f"{KV_SIZE}/heads.py",
        "if one := _multi_query(config):",
        "if False:",
    ),
    Mutation(
        "kv_size: Falcon's newer architecture reads multi_query, too",
        f"{KV_SIZE}/heads.py",
        'if config.get("new_decoder_architecture") is True:\n        return None',
        "if False:\n        return None",
    ),
    Mutation(
        "kv_size: queries per KV head taken for KV heads", f"{KV_SIZE}/heads.py", "n_heads // shared_by,", "shared_by,"
    ),
    Mutation(
        "kv_size: a zero for KV heads means as many as heads",
        f"{KV_SIZE}/config.py",
        "self.fields.get(name) is not None), None)",
        "self.fields.get(name)), None)",
    ),
    Mutation(
        "kv_size: True is a number",
        f"{KV_SIZE}/values.py",
        "isinstance(value, bool) or not isinstance(value, int)",
        "not isinstance(value, int)",
    ),
    Mutation("kv_size: a latent counts twice", f"{KV_SIZE}/specs.py", 'Stream("latent", 1,', 'Stream("latent", 2,'),
    Mutation(
        "kv_size: a latent without its rotary key", f"{KV_SIZE}/specs.py", "self.latent + self.rope,", "self.latent,"
    ),
    Mutation(
        "kv_size: a latent is split over ranks",
        f"{KV_SIZE}/specs.py",
        "        return self\n",
        "        return replace(self, latent=self.latent // ranks) if self.kind == 'latent' else self\n",
    ),
    Mutation(
        "kv_size: no copies where ranks outnumber KV heads",
        f"{KV_SIZE}/specs.py",
        "max(1, -(-self.n_kv_heads // ranks))",
        "self.n_kv_heads // ranks",
    ),
    Mutation(
        "kv_size: the first of a period is full",
        f"{KV_SIZE}/rules.py",
        "return Every(period, period - 1, other, last_full=last_full)",
        "return Every(period, 0, other, last_full=last_full)",
    ),
    Mutation(
        "kv_size: MiMo's ones are full",
        f"{KV_SIZE}/patterns.py",
        '_flags("sliding", "full")',
        '_flags("full", "sliding")',
    ),
    Mutation(
        "kv_size: MiniMax's zeros are full",
        f"{KV_SIZE}/patterns.py",
        '_flags("full", "state")',
        '_flags("state", "full")',
    ),
    Mutation(
        "kv_size: Kimi's layers counted from 0",
        f"{KV_SIZE}/patterns.py",
        "first = 0 if 0 in (*full, *linear) else 1",
        "first = 0",
    ),
    Mutation(
        "kv_size: Zamba's pattern starts at once",
        f"{KV_SIZE}/patterns.py",
        'return ["state", "state", "hybrid", *kinds][:n_layers]',
        "return kinds",
    ),
    Mutation(
        "kv_size: a window larger than the context binds",
        f"{KV_SIZE}/layers.py",
        "and value >= most > 0",
        "and value < 0",
    ),
    Mutation(
        "kv_size: use_sliding_window is not asked",
        f"{KV_SIZE}/patterns.py",
        'config.get("use_sliding_window") is True or',
        "True or",
    ),
    Mutation(
        "kv_size: no_rope_layers chunk every model",
        f"{KV_SIZE}/patterns.py",
        'config.model_type not in ("llama4", "llama4_text") or not value',
        "not value",
    ),
    Mutation("kv_size: layers that share count", f"{KV_SIZE}/layers.py", "if i >= owners:", "if False:"),
    Mutation(
        "kv_size: the vision part is read",
        f"{KV_SIZE}/fields.py",
        '"text_config", "llm_config",',
        '"vision_config", "text_config", "llm_config",',
    ),
    Mutation(
        "kv_size: a window of transformers keeps W",
        f"{KV_SIZE}/engines.py",
        "min(context, stream.window - 1)",
        "min(context, stream.window)",
    ),
    Mutation(
        "kv_size: vLLM's window has no block to spare",
        f"{KV_SIZE}/engines.py",
        "self.block) + self.block)",
        "self.block))",
    ),
    Mutation(
        "kv_size: scales not counted",
        f"{KV_SIZE}/formats.py",
        "return self.per_element * width + self.per_row",
        "return self.per_element * width",
    ),
    Mutation(
        "kv_size: convolutions keep one column more",
        f"{KV_SIZE}/states.py",
        "kernel - 1, hv * dv * dk",
        "kernel, hv * dv * dk",
    ),
    Mutation(
        "kv_size: bits of weights are bits of the cache",
        f"{KV_SIZE}/reader.py",
        'asked = isinstance(scheme, dict) and scheme.get("num_bits") == 8',
        "asked = quantization != {}",
    ),
    Mutation(
        "kv_size: signs of unknown schemes pass", f"{KV_SIZE}/caveats.py", "    if not signs:\n", "    if signs:\n"
    ),
    Mutation(
        "kv_size: a sparse peak",
        f"{KV_SIZE}/hardware.py",
        'one["bf16_dense_TFLOPs"] * 1e12',
        'one["bf16_dense_TFLOPs"] * 2e12',
    ),
    Mutation(
        "orders: the loop deals KV heads out as tile does",
        ORDERS,
        "[block for block in blocks for _ in range(self.trace.cfg.n_heads // len(blocks))]",
        "blocks * (self.trace.cfg.n_heads // len(blocks))",
    ),
    Mutation("orders: an order is held against itself", ORDERS, "_largest(given - out)", "_largest(given - given)"),
    Mutation(
        "orders: the view is transposed after all",
        ORDERS,
        "heads = x.reshape(-1, len(x), cfg.head_dim)",
        "heads = x.reshape(len(x), -1, cfg.head_dim).transpose(1, 0, 2)",
    ),
    Mutation(
        "orders: harmless is told of Q alone",
        ORDERS,
        "for heads in (cfg.n_heads, cfg.n_kv_heads)",
        "for heads in (cfg.n_heads,)",
    ),
    Mutation(
        "orders: queries of the wrong orders are not turned",
        ORDERS,
        "    q, k = _turned(q, cfg), _turned(k, cfg)\n",
        "    k = _turned(k, cfg)\n",
    ),
    Mutation(
        "reshape: what is not contiguous counts as copied",
        RESHAPE,
        "tensor.data_ptr() != product.data_ptr()",
        "not tensor.is_contiguous()",
    ),
    Mutation("reshape: owner with heads and d_k swapped", RESHAPE, "address // d_k % heads", "address // heads % d_k"),
    Mutation(
        "reshape: the wrong order is transposed", RESHAPE, "wrong = product.view(1, heads, n, d_k)", "wrong = turned"
    ),
    Mutation("timing: the big product is timed twice", TIMING, "_seconds(passes[name]", '_seconds(passes["big"]'),
    Mutation("timing: seconds of all repeats", TIMING, "(clock() - start) / repeats", "(clock() - start)"),
    Mutation(
        "timing: an output is held against itself", TIMING, "(outputs[0] - outputs[1], ", "(outputs[1] - outputs[1], "
    ),
    Mutation(
        "timing: refused when all is made",
        TIMING,
        "    refuse_too_large(n, d_model, n_heads)\n    device",
        "    device",
    ),
    Mutation("seeds: meta layers get numbers", "mha_core/seeds.py", '.type == "meta":', '.type == "none":'),
    Mutation("residual: the last token's heads", RESIDUAL, "attention.concat[0, row]", "attention.concat[0, -1]"),
    Mutation("residual: output bias forgotten", RESIDUAL, "if layer.W_O.bias is not None:", "if False:"),
    Mutation("residual: a sum checked against itself", RESIDUAL, "np.abs(stream - traced)", "np.abs(stream - stream)"),
    Mutation("lens: the norm's bias left out", RESIDUAL, "* self.gain + self.shift", "* self.gain"),
    Mutation("lens: a word stands behind itself", RESIDUAL, "(self.logits > self", "(self.logits >= self"),
    Mutation("attribution: mean not subtracted", RESIDUAL, "float(_centred(part.write) /", "float(part.write /"),
    Mutation("attribution: the norm's gain left out", RESIDUAL, "/ spread * read.gain @", "/ spread @"),
    Mutation("attribution: spread of an early stream", RESIDUAL, "found.stages[-1].stream)", "found.stages[0].stream)"),
    Mutation("attribution: spread without eps", RESIDUAL, "stream.var() + self.eps", "stream.var()"),
    Mutation("attribution: the norm's bias counts nothing", RESIDUAL, "float(self.shift @ direction)", "0.0"),
    Mutation(
        "attribution: sorted by sign, not by size", RESIDUAL, "argsort(-np.abs(values)", "argsort(-np.array(values)"
    ),
    Mutation(
        "attribution: sum checked against itself",
        RESIDUAL,
        "abs(sum(values) - difference)",
        "abs(sum(values) - sum(values))",
    ),
    Mutation("cache: written one place off", CACHE, "rows.write(start, fresh)", "rows.write(max(0, start - 1), fresh)"),
    Mutation("cache: read one row short", CACHE, "rows.read(self.seen) for", "rows.read(max(1, self.seen - 1)) for"),
    Mutation(
        "cache: a place for each of the h heads",
        ATTENTION,
        "shape = (b, self.cfg.n_kv_heads,",
        "shape = (b, self.cfg.n_heads,",
    ),
    Mutation(
        "cache: g expanded to h at every step",
        ATTENTION,
        "    rows = q.reshape(b, keys.shape[1], -1, d_k)\n",
        "    rows, keys, values = q, *(t.repeat_interleave(h // t.shape[1], 1) for t in (keys, values))\n",
    ),
    Mutation(
        "cache: heads share as tile does",
        ATTENTION,
        "rows = q.reshape(b, keys.shape[1], -1, d_k)",
        "rows = q.unflatten(1, (-1, keys.shape[1])).transpose(1, 2).reshape(b, keys.shape[1], -1, d_k)",
    ),
    Mutation("cache: a refused token is counted", CACHE, "            self.seen = start\n", "            pass\n"),
    Mutation(
        "cache: reset forgets nothing", CACHE, "        self.seen = 0\n\n    def copy", "        pass\n\n    def copy"
    ),
    Mutation("cache: a copy shares its memory", CACHE, "return deepcopy(self)", "return self"),
    Mutation(
        "cache: bytes used are all bytes", CACHE, "return self.nbytes // self.room * self.size", "return self.nbytes"
    ),
    Mutation("cache: its formula forgets the scales", CACHE, " + SCALE.itemsize", ""),
    Mutation("cache: padding is seen", CACHE, "return visible if keep is None else", "return visible if True else"),
    Mutation(
        "cache: padding by place, not by position", CACHE, "keep[:, None, keys.to(keep.device)]", "keep[:, None, -n:]"
    ),
    Mutation(
        "ring: off by one",
        CACHE,
        "rows.write(self.seen % self.room, fresh)",
        "rows.write((self.seen + 1) % self.room, fresh)",
    ),
    Mutation(
        "ring: one place too few",
        ATTENTION,
        "window = mask.width if isinstance",
        "window = mask.width - 1 if isinstance",
    ),
    Mutation(
        "ring: a prompt begins one place off",
        CACHE,
        "start = (self.seen + n_new - last.shape[-2]) % self.room",
        "start = (self.seen + n_new - last.shape[-2] + 1) % self.room",
    ),
    Mutation(
        "ring: the oldest is always row 0",
        CACHE,
        "oldest = self.seen % self.room if self.seen > self.room else 0",
        "oldest = 0",
    ),
    Mutation(
        "ring: positions off by one", CACHE, "(self.seen - 1 - slots) // self.room", "(self.seen - slots) // self.room"
    ),
    Mutation("ring: the newest is last", CACHE, "if self._in_order else (self.seen - 1) % self.room", "if True else 0"),
    Mutation(
        "ring: wider than the window, all is seen",
        ATTENTION,
        " and not (isinstance(mask, SlidingWindow) and n > mask.width)",
        "",
    ),
    Mutation(
        "quantised: one scale for the whole tensor",
        CACHE,
        "wide.abs().amax(-1, keepdim=True)",
        "wide.abs().amax().expand(*wide.shape[:-1], 1)",
    ),
    Mutation(
        "quantised: one scale for all heads of a token",
        CACHE,
        "wide.abs().amax(-1, keepdim=True)",
        "wide.abs().amax((-3, -1), keepdim=True).expand(*wide.shape[:-1], 1)",
    ),
    Mutation("quantised: rounded down", CACHE, ").round().clamp(", ").floor().clamp("),
    Mutation(
        "quantised: halves of a byte swapped",
        CACHE,
        "return low | (high << 4), scales",
        "return high | (low << 4), scales",
    ),
    Mutation(
        "quantised: a prompt is attended to unrounded",
        CACHE,
        "return self._restored(*self._rounded(new))",
        "return new",
    ),
    Mutation(
        "rotary: queries one place off in decode",
        ATTENTION,
        "q_rot, k_rot = self._turned(cache.seen, q, k)",
        "(q_rot,), (k_rot,) = self._turned(cache.seen + 1, q), self._turned(cache.seen, k)",
    ),
    Mutation(
        "rotary: queries and keys one place off in decode",
        ATTENTION,
        "self._turned(cache.seen, q, k)",
        "self._turned(cache.seen + 1, q, k)",
    ),
    Mutation("rotary: every new token is the first", ATTENTION, "table.narrow(1, start, m)", "table.narrow(1, 0, m)"),
    Mutation(
        "rotary: the table turns the other way", ATTENTION, "torch.cat((-sin, sin), -1)", "torch.cat((sin, -sin), -1)"
    ),
    Mutation(
        "decode: learned positions start at 0",
        TRANSFORMER,
        "torch.arange(start, n, device",
        "torch.arange(0, n - start, device",
    ),
    Mutation(
        "decode: a full row where nothing is visible",
        ATTENTION,
        "return torch.where(visible.any(-1, keepdim=True), z, 0.0)",
        "return z + 1.0 * ~visible.any(-1, keepdim=True)",
    ),
    Mutation(
        "latent: scale of the content alone", LATENT, "(self.head_dim + self.rope_dim) ** -0.5", "self.head_dim**-0.5"
    ),
    Mutation(
        "latent: cut off at the wrong end", LATENT, "gathered[..., : self.cfg.rank]", "gathered[..., -self.cfg.rank :]"
    ),
    Mutation(
        "latent: rotary key not turned",
        LATENT,
        "rotate(self.W_KR(x)[:, None], positions, self.cfg.rotary_base)[:, 0]",
        "self.W_KR(x) + 0 * positions[:, None]",
    ),
    Mutation(
        "latent: W_UK absorbed by the wrong heads",
        LATENT,
        "q @ self.W_UK.weight.unflatten(0, (self.cfg.n_heads, -1))",
        "q @ self.W_UK.weight.unflatten(0, (self.cfg.n_heads, -1)).flip(0)",
    ),
    Mutation(
        "latent: cached for every head",
        LATENT,
        "(b, n_max, self.cfg.cached_width), bits)",
        "(b, n_max, self.cfg.cached_width * 2), bits)",
    ),
    Mutation(
        "truncated: keys turned by their place",
        LATENT,
        "positions, newest = cache.positions(k.shape[2]).to(x.device)",
        "positions, newest = torch.arange(k.shape[2])",
    ),
    Mutation(
        "truncated: one direction too few",
        LATENT,
        "sizes[:rank, None] * right[:rank]",
        "sizes[:rank, None] * right[:rank] * (torch.arange(rank) < rank - 1)[:, None]",
    ),
    Mutation(
        "truncated: kept is not squared",
        LATENT,
        "sizes[:rank].square().sum() / sizes.square().sum()",
        "sizes[:rank].sum() / sizes.sum()",
    ),
    Mutation("truncated: biases dropped", LATENT, "None if layer.W_K.bias is None else", "None if True else"),
    Mutation(
        "sampling: top-p leaves out the one that reaches p",
        DECODING,
        "ranked.cumsum(0) - ranked >= self.top_p",
        "ranked.cumsum(0) >= self.top_p",
    ),
    Mutation(
        "sampling: top-p keeps one too many",
        DECODING,
        "ranked.cumsum(0) - ranked >= self.top_p",
        "ranked.cumsum(0) - 2 * ranked >= self.top_p",
    ),
    Mutation("sampling: top-k keeps one too many", DECODING, "ranked[self.top_k :]", "ranked[self.top_k + 1 :]"),
    Mutation("sampling: temperature multiplies", DECODING, "above / self.temperature", "above * self.temperature"),
    Mutation(
        "sampling: nothing is subtracted first", DECODING, "logits.double() - logits.double().max()", "logits.double()"
    ),
    Mutation(
        "sampling: draws by step, not by position", DECODING, '"token", len(self.tokens))', '"token", self._number)'
    ),
    Mutation(
        "decoding: a forced token is not read",
        DECODING,
        "self._unread, self._number = [step.token],",
        "self._unread, self._number = [int(logits.argmax())],",
    ),
    Mutation(
        "decoding: watching spoils the caches",
        DECODING,
        "copies = [cache.copy() for cache in self._caches]",
        "copies = self._caches",
    ),
    Mutation(
        "decoding: recomputing keeps the past", DECODING, "                cache.reset()\n", "                pass\n"
    ),
    Mutation(
        "decoding: one token too few",
        DECODING,
        "return len(self.tokens) > self._n_max",
        "return len(self.tokens) >= self._n_max",
    ),
    Mutation("decoding: ring counted as if all were kept", DECODING, "else min(n, room))", "else n)"),
    Mutation("work: results are not written", WORK, "t * (r * i + i * c + r * c)", "t * (r * i + i * c)"),
    Mutation("work: counted once, not added up", WORK, "self.work += _measured", "self.work = _measured"),
    Mutation("config: g need not divide h", CONFIG, "if cfg.n_heads % cfg.n_kv_heads:", "if False:"),
    Mutation(
        "config: True is a number",
        CONFIG,
        "if isinstance(value, bool) or not isinstance(value, int):",
        "if not isinstance(value, int):",
    ),
    Mutation(
        "pooling: heads as tile deals them, not consecutive ones",
        POOLING,
        "rows.unflatten(0, (n_kv_heads, -1, d_k)).mean(1)",
        "rows.unflatten(0, (-1, n_kv_heads, d_k)).mean(0)",
    ),
    Mutation("pooling: sum instead of mean", POOLING, ".mean(1).flatten(0, 1)", ".sum(1).flatten(0, 1)"),
    Mutation("pooling: the first head instead of the mean", POOLING, ".mean(1).flatten(0, 1)", "[:, 0].flatten(0, 1)"),
    Mutation("pooling: keys alone", POOLING, 'OF_KV_HEADS = ("W_K", "W_V")', 'OF_KV_HEADS = ("W_K",)'),
    Mutation(
        "pooling: keys are means, values those of the first heads",
        POOLING,
        "if _is_of_kv_heads(name) else tensor\n",
        "if 'W_K' in name else tensor[: fewer.state_dict()[name].shape[0]]\n",
    ),
    Mutation(
        "pooling: to any g that divides h",
        POOLING,
        "choices = attention.n_kv_heads, targets(attention.n_kv_heads)",
        "choices = attention.n_kv_heads, targets(attention.n_heads)",
    ),
    Mutation("pooling: to the same g", POOLING, "divisors(n_kv_heads)[:-1]", "divisors(n_kv_heads)"),
    Mutation(
        "pooling: weights in float64 rounded", POOLING, "Transformer(cfg).to(model.unembed.weight)", "Transformer(cfg)"
    ),
    Mutation("pooling: error as a share of the pooled output", POOLING, "/ right.norm(dim=-1)", "/ found.norm(dim=-1)"),
    Mutation("pooling: padding counted as words", POOLING, "batch[:, 1:] != PAD_ROW", "batch[:, 1:] >= PAD_ROW"),
    Mutation(
        "pooling: divergence the other way round",
        POOLING,
        "kl_div(found.log_softmax(-1), right.log_softmax(-1),",
        "kl_div(right.log_softmax(-1), found.log_softmax(-1),",
    ),
    Mutation(
        "pooling cost: behind the model before, not the trained one",
        POOLING_COST,
        "_halves_apart(self.after, self.trained)",
        "_halves_apart(self.after, self.before)",
    ),
    Mutation(
        "pooling cost: beside a trained model of the old g",
        POOLING_COST,
        "(sizes := (c.d_model, c.n_heads, after.figures.n_kv_heads))",
        "(sizes := (c.d_model, c.n_heads, c.trained.n_kv_heads))",
    ),
    Mutation("pooling cost: one half twice", POOLING_COST, "rows[half:]", "rows[:half]"),
    Mutation(
        "pooling cost: figures of other weights kept", POOLING_COST, " and one.sha256 == cards[one.name].sha256", ""
    ),
)


def first_failure(mutation: Mutation) -> str | None:
    """The test that notices the mutation first, or None when it survives."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, tree / name)
        path = tree / mutation.file
        source = path.read_text()
        assert source.count(mutation.before) == 1, f"{mutation.name}: its pattern must occur exactly once"
        path.write_text(source.replace(mutation.before, mutation.after))
        # The reader of configs is tested as a whole: most of its rules show in the published cases.
        return _first_failing_test(
            tree, "tests/core/kv_size" if KV_SIZE in mutation.file else f"tests/core/test_{path.stem}.py"
        )


def _first_failing_test(tree: Path, own_tests: str) -> str | None:
    """The tests of the changed file first, then all; hypothesis need not make its example small."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=hunt"]
    command += [f"--ignore-glob=*/test_{name}*" for name in ("training", "grammar", "zoo")]
    for where in (own_tests, "tests/core"):
        done = subprocess.run([*command, where], cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            found = re.search(r"^(?:FAILED|ERROR) tests/core/(\S+)", done.stdout, re.MULTILINE)
            return found[1] if found else f"pytest ended with {done.returncode}: {done.stdout[-300:]!r}"
    return None


def main() -> None:
    """Run the mutations, print one line each, and fail when one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the names to run")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    mutations = [mutation for mutation in MUTATIONS if chosen.only in mutation.name]
    print("| mutation | first test that fails |\n|---|---|")
    survivors = 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for mutation, test in zip(mutations, pool.map(first_failure, mutations), strict=True):
            survivors += test is None
            print(f"| {mutation.name} | {'**survives**' if test is None else f'`{test}`'} |", flush=True)
    print(f"\n{len(mutations)} mutations, {survivors} survive")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
