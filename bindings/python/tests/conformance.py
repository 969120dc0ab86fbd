# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance cases (bindings/conformance/README.md) through the package's classes; where a case wants what these do
not let happen (closing twice, a handle that is NULL), through the low layer below them.

    python conformance.py CASES
"""

import functools
import os
import re
import shutil
import struct
import sys
import tempfile
from array import array

import pagedkv
from pagedkv import _core

MAX = 2**64 - 1


# ---- values ----


def number(text):
    return MAX if text == "max" else int(text, 0)


def numbers(text):
    out = []
    for item in [] if text in ("", "none") else text.split(","):
        if ".." in item:
            first, last = item.split("..")
            out.extend(range(number(first), number(last) + 1))
        elif "*" in item:
            value, times = item.split("*")
            out.extend([number(value)] * number(times))
        else:
            out.append(number(item))
    return out


def as_bytes(text):
    return bytes.fromhex(text[1:]) if text.startswith("@") else text.encode()


def listed(items):
    return ",".join(str(item) for item in items) or "none"


def expanded(text):
    return listed(numbers(text)) if ".." in text or "*" in text else text


def short(status):
    name = _core.status_string(status)
    return name[8:] if name.startswith("PKV_ERR_") else name[4:]


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in bytes(data):
        digest = (digest ^ byte) * 0x100000001B3 & MAX
    return f"{digest:016x}"


# ---- a line ----


class Line(dict):
    """The arguments of a line, as text."""

    def number(self, key, otherwise=0):
        return number(self[key]) if key in self else otherwise

    def list(self, key):
        return numbers(self.get(key, ""))

    def name(self, key):
        """The name of a constant, or its number."""
        value = self.get(key)
        return int(value) if value is not None and re.fullmatch(r"-?\d+", value) else value

    def numbers_of(self, *keys):
        return {key: self.number(key) for key in keys if key in self}

    def seconds(self, key, otherwise=None):
        value = self.number(key, otherwise if otherwise is not None else MAX)
        return None if value == MAX else value / 1e9


class Case:
    def __init__(self):
        self.objects = []
        self.folder = None

    def end(self):
        for _, _, thing in reversed(self.objects):
            if isinstance(thing, _core.Handle):
                try:
                    CLOSE[type(thing)](thing)
                except pagedkv.PagedKVError:
                    pass
        self.objects = []
        if self.folder is not None:
            shutil.rmtree(self.folder)
            self.folder = None

    def path(self, name):
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="pkv-cases.")
        return os.path.join(self.folder, name)

    def add(self, cls, name, thing):
        self.objects.append((cls, name, thing))
        return thing

    def find(self, cls, name):
        for kind, known, thing in reversed(self.objects):
            if kind is cls and known == name:
                return thing
        raise KeyError(f"there is no {cls.__name__} {name}")

    def make(self, cls, name, make):
        """A new object; one that could not be made is a handle that was never opened."""
        try:
            return self.add(cls, name, make())
        except BaseException:
            self.add(cls, name, cls.__new__(cls))
            raise

    def sync(self, line):
        if "sync" not in line:
            return None
        name, value = line["sync"].split(":")
        timeout = line.number("sync_timeout", 1000000) / 1e9
        return self.find(pagedkv.HostCounter, name).reached(int(value), timeout)


CLOSE = {
    pagedkv.Pool: _core.pool_destroy,
    pagedkv.Table: lambda table: _core.table_destroy(table, None),
    pagedkv.Batch: _core.batch_destroy,
    pagedkv.Tier: _core.tier_close,
    pagedkv.Queue: _core.queue_destroy,
    pagedkv.Op: _core.op_close,
    pagedkv.PrefetchSession: lambda session: _core.prefetch_close(session, None),
}


# ---- prompts and rows ----


def namespace(line):
    if not any(key in line for key in ("model", "adapter", "adapter_id", "generation", "salt")):
        return None
    return pagedkv.Namespace(
        as_bytes(line.get("model", "")),
        adapter=as_bytes(line.get("adapter", "")),
        adapter_id=line.number("adapter_id"),
        adapter_generation=line.number("generation"),
        salt=as_bytes(line.get("salt", "")),
    )


def prompt(line):
    media = None
    if "media" in line:
        media = []
        for item in line["media"].split("/"):
            position, tokens, digest = item.split(":")
            media.append(pagedkv.Media(int(position), int(tokens), as_bytes(digest)))
    return {"tokens": line.list("tokens"), "namespace": namespace(line), "media": media}


DTYPES = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "opaque"]


class Rows:
    """Rows of K and V for some tokens, by the pattern or empty."""

    def __init__(self, line, pool, position, count, fill):
        group = line.number("group")
        layer = line.number("layer")
        groups = pool._groups() if not pool.closed else ()
        dtype, heads, *row_bytes = groups[group] if group < len(groups) else (1, 1, 0, 0)
        self.values = line.get("dtype") == "f32" and dtype != DTYPES.index("f32") + 1
        element = _core.dtype_bytes(dtype) or 1
        tag = line.number("fill")
        self.sides = []
        for side in range(2):
            given = "kv"[side] in line.get("sides", "kv") and (side == 0 or row_bytes[1] != 0)
            if not given:
                self.sides.append(None)
                continue
            width = row_bytes[side] // element if self.values else row_bytes[side]
            data = array("f" if self.values else "B", bytes(count * heads * width * (4 if self.values else 1)))
            at = 0
            for t in range(position, position + count if fill else position):
                for h in range(heads):
                    for i in range(width):
                        if self.values:
                            data[at] = (tag + side * 5 + layer * 3 + t * 7 + h * 2 + i) % 17 - 8
                        else:
                            value = tag * 7 + side * 101 + layer * 53 + t * 29 + (t >> 8) * 11 + h * 17 + i * 3
                            data[at] = value & 255
                        at += 1
            self.sides.append(data if len(data) else None)
        self.k, self.v = self.sides

    def digests(self):
        return {name: fnv(side.tobytes()) for name, side in zip("kv", self.sides) if side is not None}


# ---- operations ----

OPERATIONS = {}


def operation(name):
    def keep(function):
        OPERATIONS[name] = function
        return function

    return keep


@operation("version")
def version(case, line):
    return {"number": _core.version_number(), "text": pagedkv.version()}


@operation("status_name")
def status_name(case, line):
    return {"name": _core.status_string(line.number("number"))}


@operation("dtype_bytes")
def dtype_bytes(case, line):
    name = line.name("dtype")
    return {"bytes": _core.dtype_bytes(DTYPES.index(name) + 1 if isinstance(name, str) else name)}


@operation("digest")
def digest(case, line):
    return {"digest": pagedkv.digest(*map(as_bytes, line["parts"].split(","))).hex()}


@operation("counter")
def counter(case, line):
    try:
        found = case.find(pagedkv.HostCounter, line["counter"])
    except KeyError:
        found = case.add(pagedkv.HostCounter, line["counter"], pagedkv.HostCounter())
    found.value = line.number("value")


@operation("predict")
def predict(case, line):
    options = {key: line.number(key) for key in ("sink_tokens", "recent_tokens", "lookahead") if key in line}
    scores = line.list("scores")
    native = _core.predictor()
    native.policy = ["sequential", "full", "hinted"].index(line["policy"])
    native.page_tokens = line.number("page_tokens", 16)
    for key, value in options.items():
        setattr(native, key, value)
    capacity = line.number("capacity", 64)
    blocks = array("Q", bytes(8 * capacity)) if capacity else None
    args = (native, line.number("num_tokens"), line.number("position"), len(scores), scores)
    try:
        count = _core.prefetch_predict(*args, blocks, capacity)
    except pagedkv.NoSpaceError as error:
        error.outputs = {"num_blocks": _core.prefetch_predict(*args, None, 0)}
        raise
    if capacity:
        found = pagedkv.predict(
            policy=line["policy"],
            page_tokens=native.page_tokens,
            num_tokens=args[1],
            position=args[2],
            scores=scores,
            **options,
        )
        assert found == list(blocks[:count])
        return {"num_blocks": count, "blocks": listed(found)}
    return {"num_blocks": count}


GROUP_NUMBERS = (
    "num_pages num_layers first_layer total_layers num_kv_heads k_head_dim v_head_dim k_row_bytes v_row_bytes window sinks "
    "k_page_stride max_cached_pages aux_bytes"
).split()
GROUP_NAMES = "dtype layout arrangement attention memory scales".split()


def make_group(line):
    names = {key: line.name(key) for key in GROUP_NAMES if key in line}
    return pagedkv.Group(**line.numbers_of(*GROUP_NUMBERS), **names)


@operation("group")
def group(case, line):
    case.add(pagedkv.Group, line["group"], make_group(line))


@operation("pool.create")
def pool_create(case, line):
    groups = [case.find(pagedkv.Group, name) for name in line["groups"].split(",")] if "groups" in line else [make_group(line)]
    tiers = []
    for item in line["tiers"].split("/") if "tiers" in line else ():
        name, policy = item.split(":")
        tiers.append(pagedkv.Attachment(case.find(pagedkv.Tier, name), policy))
    options = line.numbers_of("page_tokens", "seed", "debug", "event_capacity", "copy_threads", "flags", "clean_pages")
    case.make(pagedkv.Pool, line["pool"], lambda: pagedkv.Pool(groups, tiers=tiers, **options))


def on_pool(name):
    def decorate(function):
        @operation("pool." + name)
        @functools.wraps(function)
        def run(case, line):
            return function(case, line, case.find(pagedkv.Pool, line["pool"]), line.number("group"))

        return run

    return decorate


@on_pool("destroy")
def pool_destroy(case, line, pool, group):
    _core.pool_destroy(pool)


@on_pool("quiesce")
def pool_quiesce(case, line, pool, group):
    pool.quiesce(line.seconds("timeout", 0))


@on_pool("flush")
def pool_flush(case, line, pool, group):
    pool.flush(line.seconds("timeout", 0))


@on_pool("layout")
def pool_layout(case, line, pool, group):
    layout = pool.layout(line.number("layer"), group=group)
    names = [f"{side}_{what}_stride" for side in "kv" for what in ("page", "token", "head")]
    names += "k_row_bytes v_row_bytes num_kv_heads page_tokens dtype scale_page_stride".split()
    return {"has_memory": int(layout.k_base_address != 0), **{name: getattr(layout, name) for name in names}}


@on_pool("alloc")
def pool_alloc(case, line, pool, group):
    return {"pages": listed(pool.alloc(line.number("num_pages"), group=group))}


@on_pool("retain")
def pool_retain(case, line, pool, group):
    pool.retain(line.list("pages"), group=group)


@on_pool("release")
def pool_release(case, line, pool, group):
    pages, sync = line.list("pages"), case.sync(line)
    if not line.number("each"):
        pool.release(pages, group=group, sync=sync)
        return None
    statuses = pool.release_each(pages, group=group, sync=sync)
    return rows_result(statuses)


def rows_result(statuses):
    """Statuses of rows as the operation's: the first failure."""
    outputs = {"statuses": listed(map(short, statuses))}
    for status in statuses:
        if status != 0:
            error = pagedkv.error_of(status)
            error.outputs = outputs
            raise error
    return outputs


@on_pool("page_info")
def pool_page_info(case, line, pool, group):
    return pagedkv.as_dict(pool.page_info(line.number("page"), group=group))


def found(match):
    return {
        "match": match.tokens,
        "blocks": match.blocks,
        "resident": match.resident_tokens,
        "tier0": match.tier_tokens[0],
        "tier1": match.tier_tokens[1],
    }


@on_pool("lookup")
def pool_lookup(case, line, pool, group):
    match, pages = pool.lookup(**prompt(line), max_match=line.number("max_match"), capacity=line.number("capacity", 16))
    lists = {name: listed(ids) for name, ids in zip(("pages", "pages1"), pages)}
    return {**found(match), **lists}


@on_pool("probe")
def pool_probe(case, line, pool, group):
    return found(pool.probe(**prompt(line), max_match=line.number("max_match")))


@on_pool("publish")
def pool_publish(case, line, pool, group):
    owner = pool.publish(pages=line.list("pages"), first_block=line.number("first_block"), group=group, **prompt(line))
    return {"owner": listed(owner)}


@on_pool("evict")
def pool_evict(case, line, pool, group):
    return {"evicted": pool.evict(line.number("num_pages"), group=group)}


def retention(line):
    ttl = line.number("ttl")
    return pagedkv.Retention(line.number("priority", 50), line.number("pin") != 0, ttl / 1e9 if ttl else None)


@on_pool("set_retention")
def pool_set_retention(case, line, pool, group):
    first, count = line.number("first_token"), line.number("num_tokens", MAX)
    return {"blocks": pool.set_retention(retention=retention(line), first_token=first, num_tokens=count, **prompt(line))}


@on_pool("set_namespace_retention")
def pool_set_namespace_retention(case, line, pool, group):
    pool.set_namespace_retention(namespace(line), None if line.number("none") else retention(line))


@on_pool("clear")
def pool_clear(case, line, pool, group):
    return pagedkv.as_dict(pool.clear_all() if line.number("all") else pool.clear(namespace(line)))


def keys_of(case, line, pool, size, low, high):
    capacity = line.number("capacity", 64)
    given = pagedkv._values.prompt(**{key: value for key, value in prompt(line).items()})
    memory = bytearray(size * capacity) if capacity else None
    try:
        count = low(given, memory, capacity)
    except pagedkv.NoSpaceError as error:
        error.outputs = {"num_keys": low(given, None, 0)}
        raise
    if not capacity:
        return {"num_keys": count}
    data = b"".join(high(**prompt(line)))
    assert data == bytes(memory[: count * size])
    return {"num_keys": count, "digest": fnv(data)}


@on_pool("keys")
def pool_keys(case, line, pool, group):
    def high(**given):
        return [struct.pack("=QQ", key & MAX, key >> 64) for key in pool.keys(**given)]

    return keys_of(case, line, pool, 16, functools.partial(_core.pool_keys, pool), high)


@on_pool("image_keys")
def pool_image_keys(case, line, pool, group):
    high = functools.partial(pool.image_keys, group=group)
    return keys_of(case, line, pool, 32, functools.partial(_core.pool_image_keys, pool, group), high)


@on_pool("events")
def pool_events(case, line, pool, group):
    events, missed = pool.events(line.number("after"), line.number("capacity", 64))
    kinds = {"stored": 1, "removed": 2, "cleared": 3}
    return {
        "count": len(events),
        "missed": missed,
        "kinds": listed(kinds[event.kind] for event in events),
        "blocks": listed(event.block for event in events),
        "last": events[-1].sequence if events else 0,
    }


@on_pool("write")
def pool_write(case, line, pool, group):
    slots = line.list("slots")
    rows = Rows(line, pool, line.number("position"), len(slots), True)
    pool.write(line.number("layer"), slots, rows.k, rows.v, group=group, sync=case.sync(line))


@on_pool("gather")
def pool_gather(case, line, pool, group):
    count = line.number("num_tokens")
    rows = Rows(line, pool, 0, count, False)
    pool.gather(
        line.number("layer"),
        line.list("pages"),
        rows.k,
        rows.v,
        first_token=line.number("first_token"),
        num_tokens=count,
        group=group,
        sync=case.sync(line),
    )
    return rows.digests()


@on_pool("copy_pages")
def pool_copy_pages(case, line, pool, group):
    pool.copy_pages(line.list("src"), line.list("dst"), group=group, sync=case.sync(line))


@on_pool("stats")
def pool_stats(case, line, pool, group):
    return pagedkv.as_dict(pool.stats(group=group))


def pool_move(case, line, pool, group, function):
    pages = line.list("pages")
    queue = case.find(pagedkv.Queue, line["queue"]) if "queue" in line else None
    timeout = line.number("timeout") / 1e9 or None

    def begin():
        keys = pool.image_keys(group=group, **prompt(line))
        more = dict(group=group, sync=case.sync(line), queue=queue, user=line.number("user"), timeout=timeout)
        return function(keys[: len(pages)], pages, **more)

    case.make(pagedkv.Op, line["op"], begin)


@on_pool("store")
def pool_store(case, line, pool, group):
    pool_move(case, line, pool, group, pool.store)


@on_pool("load")
def pool_load(case, line, pool, group):
    pool_move(case, line, pool, group, pool.load)


# ---- tables ----


@operation("table.create")
def table_create(case, line):
    case.make(pagedkv.Table, line["table"], lambda: pagedkv.Table(case.find(pagedkv.Pool, line["pool"])))


def on_table(name):
    def decorate(function):
        @operation("table." + name)
        @functools.wraps(function)
        def run(case, line):
            return function(case, line, case.find(pagedkv.Table, line["table"]), line.number("group"))

        return run

    return decorate


@on_table("destroy")
def table_destroy(case, line, table, group):
    _core.table_destroy(table, case.sync(line))


@on_table("clear")
def table_clear(case, line, table, group):
    table.clear(case.sync(line))


@on_table("admit")
def table_admit(case, line, table, group):
    flags = line.number("flags")
    if flags & ~0xF:  # bits that the class has no names for
        options = _core.admit_options()
        options.flags = flags
        _core.table_admit(table, pagedkv._values.prompt(**prompt(line)), options)
    more = line.numbers_of("max_match", "reserve_tokens", "watermark")
    named = dict(match=not flags & 1, retry=bool(flags & 2), partial=bool(flags & 4), share=bool(flags & 8))
    return found(table.admit(**prompt(line), **more, **named))


@on_table("reserve")
def table_reserve(case, line, table, group):
    table.reserve(line.number("num_tokens"))


@on_table("set_tokens")
def table_set_tokens(case, line, table, group):
    table.set_tokens(line.number("position"), line.list("tokens"))


@on_table("write")
def table_write(case, line, table, group):
    position, count = line.number("position"), line.number("num_tokens")
    rows = Rows(line, case.find(pagedkv.Pool, line["pool"]), position, count, True)
    more = dict(group=group, num_tokens=count, sync=case.sync(line))
    table.write(line.number("layer"), position, rows.k, rows.v, **more)


@on_table("gather")
def table_gather(case, line, table, group):
    count = line.number("num_tokens")
    rows = Rows(line, case.find(pagedkv.Pool, line["pool"]), 0, count, False)
    more = dict(group=group, num_tokens=count, sync=case.sync(line))
    table.gather(line.number("layer"), line.number("position"), rows.k, rows.v, **more)
    return rows.digests()


@on_table("commit")
def table_commit(case, line, table, group):
    table.commit(line.number("num_tokens"), case.sync(line))


@on_table("fill")
def table_fill(case, line, table, group):
    pool = case.find(pagedkv.Pool, line["pool"])
    first, end = line.number("from"), line.number("num_tokens")
    for g in range(pool.num_groups):
        layer = 0
        while True:
            try:
                pool.layout(layer, group=g)
            except pagedkv.InvalidError:
                break
            rows = Rows(Line(line, group=str(g), layer=str(layer)), pool, first, end - first, True)
            table.write(layer, first, rows.k, rows.v, group=g, num_tokens=end - first)
            layer += 1
    table.commit(end)


@on_table("fork")
def table_fork(case, line, table, group):
    case.make(pagedkv.Table, line["fork"], lambda: table.fork(case.sync(line)))


@on_table("truncate")
def table_truncate(case, line, table, group):
    table.truncate(line.number("num_tokens"), case.sync(line))


@on_table("accept")
def table_accept(case, line, table, group):
    table.accept(line.list("positions"), case.sync(line))


@on_table("window")
def table_window(case, line, table, group):
    table.window(case.sync(line))


@on_table("set_retention")
def table_set_retention(case, line, table, group):
    first, count = line.number("first_token"), line.number("num_tokens", MAX)
    table.set_retention(retention(line), first_token=first, num_tokens=count)


@on_table("take_copies")
def table_take_copies(case, line, table, group):
    if line.get("capacity") == "0":
        return {"count": _core.table_take_copies(table, None, 0)}
    copies = table.take_copies()
    return {
        "count": len(copies),
        "src": listed(copy.src for copy in copies),
        "dst": listed(copy.dst for copy in copies),
    }


@on_table("export")
def table_export(case, line, table, group):
    if "capacity" in line:
        _core.table_export(table, bytearray(line.number("capacity")), line.number("capacity"))
    data = table.export_bytes()
    if "damage" in line:
        data[line.number("damage")] ^= 1
    if "into" in line:
        case.find(pagedkv.Table, line["into"]).import_bytes(data)
    return {"size": len(data)}


@on_table("pages")
def table_pages(case, line, table, group):
    if "capacity" not in line:
        pages = table.pages(group=group)
        return {"num_blocks": len(pages), "pages": listed(pages)}
    capacity = line.number("capacity")
    out = array("i", bytes(4 * capacity)) if capacity else None
    try:
        count = _core.table_pages(table, group, out, capacity)
    except pagedkv.NoSpaceError as error:
        error.outputs = {"num_blocks": _core.table_pages(table, group, None, 0)}
        raise
    return {"num_blocks": count, **({"pages": listed(out[:count])} if capacity else {})}


@on_table("slots")
def table_slots(case, line, table, group):
    return {"slots": listed(table.slots(line.number("position"), line.number("num_tokens"), group=group))}


@on_table("residency")
def table_residency(case, line, table, group):
    return {"where": listed(table.residency(line.number("first_block"), line.number("num_blocks"), group=group))}


@on_table("spill")
def table_spill(case, line, table, group):
    result = table.spill(line.number("first_block"), line.number("num_blocks", MAX), case.sync(line))
    return {"spilled": result.spilled_blocks, "shared": result.shared_pages}


@on_table("restore")
def table_restore(case, line, table, group):
    restored = table.restore(line.number("first_block"), line.number("num_blocks", MAX), line.seconds("timeout"))
    return {"restored": restored}


@on_table("info")
def table_info(case, line, table, group):
    return pagedkv.as_dict(table.info())


# ---- batches ----


@operation("batch.create")
def batch_create(case, line):
    pool = case.find(pagedkv.Pool, line["pool"])
    options = dict(max_tables=line.number("max_tables", 1), max_tokens=line.number("max_tokens"))
    arrays = pagedkv.BatchArrays(group=line.number("group"), fill=line.number("fill"), max_blocks=line.number("max_blocks"))
    case.make(pagedkv.Batch, line["batch"], lambda: pagedkv.Batch(pool, arrays=[arrays], **options))


def on_batch(name):
    def decorate(function):
        @operation("batch." + name)
        @functools.wraps(function)
        def run(case, line):
            return function(case, line, case.find(pagedkv.Batch, line["batch"]), line.number("group"))

        return run

    return decorate


@on_batch("destroy")
def batch_destroy(case, line, batch, group):
    _core.batch_destroy(batch)


@on_batch("arrays")
def batch_arrays(case, line, batch, group):
    names = ("block_table", "slot_mapping", "lengths", "last_page_len")
    return {name: listed(getattr(batch, name)) for name in names}


@on_batch("reserve")
def batch_reserve(case, line, batch, group):
    tables = [case.find(pagedkv.Table, name) for name in line["tables"].split(",")] if "tables" in line else []
    return rows_result(batch.reserve(tables, line.list("num_new")))


@on_batch("set_tokens")
def batch_set_tokens(case, line, batch, group):
    return rows_result(batch.set_tokens(line.list("tokens")))


@on_batch("write")
def batch_write(case, line, batch, group):
    rows = Rows(line, case.find(pagedkv.Pool, line["pool"]), 0, line.number("num_tokens"), True)
    batch.write(line.number("layer"), rows.k, rows.v, group=group, sync=case.sync(line))


@on_batch("gather")
def batch_gather(case, line, batch, group):
    rows = Rows(line, case.find(pagedkv.Pool, line["pool"]), 0, line.number("num_tokens"), False)
    first = line.list("first") or None
    more = dict(first=first, padded=line.number("padded"), group=group, sync=case.sync(line))
    batch.gather(line.number("layer"), rows.k, rows.v, **more)
    return rows.digests()


@on_batch("commit")
def batch_commit(case, line, batch, group):
    return rows_result(batch.commit(line.list("num_accepted") or None, case.sync(line)))


# ---- tiers, queues, operations ----


@operation("tier.host")
def tier_host(case, line):
    case.make(pagedkv.Tier, line["tier"], lambda: pagedkv.Tier.host(line.number("capacity")))


@operation("tier.file")
def tier_file(case, line):
    options = line.numbers_of("max_images", "threads")
    if "engine" in line:
        options["engine"] = line["engine"]
    if "lock_timeout" in line:
        options["lock_timeout"] = line.number("lock_timeout") / 1e9
    flags = line.number("flags")

    def make():
        if flags & ~3:  # bits that the class has no names for
            native = _core.file_tier_options()
            native.set_path(case.path(line["path"]))
            native.capacity_bytes = line.number("capacity")
            native.flags = flags
            _core.tier_open_file(native, pagedkv.Tier.__new__(pagedkv.Tier))
        return pagedkv.Tier.file(
            case.path(line["path"]),
            line.number("capacity"),
            identity=as_bytes(line.get("identity", "")),
            reset=bool(flags & 1),
            buffered=bool(flags & 2),
            **options,
        )

    case.make(pagedkv.Tier, line["tier"], make)


@operation("tier.close")
def tier_close(case, line):
    _core.tier_close(case.find(pagedkv.Tier, line["tier"]))


@operation("tier.stats")
def tier_stats(case, line):
    stats = case.find(pagedkv.Tier, line["tier"]).stats()
    return {**pagedkv.as_dict(stats.get_usage()), **pagedkv.as_dict(stats)}


@operation("queue.create")
def queue_create(case, line):
    case.make(pagedkv.Queue, line["queue"], pagedkv.Queue)


@operation("queue.destroy")
def queue_destroy(case, line):
    _core.queue_destroy(case.find(pagedkv.Queue, line["queue"]))


@operation("queue.handle")
def queue_handle(case, line):
    return {"valid": int(case.find(pagedkv.Queue, line["queue"]).fileno() >= 0)}


@operation("queue.drain")
def queue_drain(case, line):
    queue = case.find(pagedkv.Queue, line["queue"])
    ended = queue.drain(line.number("capacity", 16), line.seconds("timeout", 0))
    outputs = {"users": listed(one.user for one in ended), "statuses": listed(short(one.status) for one in ended)}
    if not ended:  # the class gives an empty list for it
        error = pagedkv.TimedOutError(pagedkv.Status.TIMEOUT)
        error.outputs = outputs
        raise error
    return outputs


@operation("op.poll")
def op_poll(case, line):
    info = case.find(pagedkv.Op, line["op"]).poll()
    return {
        "state": int(info.ended),
        "result": short(info.status),
        "num_items": info.num_items,
        "done_items": info.done_items,
        "good_items": info.good_items,
        "statuses": listed(map(short, info.statuses)),
    }


@operation("op.wait")
def op_wait(case, line):
    case.find(pagedkv.Op, line["op"]).wait(line.seconds("timeout"))


@operation("op.cancel")
def op_cancel(case, line):
    case.find(pagedkv.Op, line["op"]).cancel()


@operation("op.close")
def op_close(case, line):
    _core.op_close(case.find(pagedkv.Op, line["op"]))


# ---- prefetch ----


@operation("prefetch.open")
def prefetch_open(case, line):
    names = "flags sink_tokens recent_tokens max_lookahead max_block_pages num_buffers max_tables".split()
    options = line.numbers_of(*names)
    if "policy" in line:
        options["policy"] = line["policy"]
    if "staging" in line:
        options["staging_pages"] = line.list("staging")
    pool = case.find(pagedkv.Pool, line["pool"])
    case.make(pagedkv.PrefetchSession, line["session"], lambda: pagedkv.PrefetchSession(pool, **options))


def on_session(name):
    def decorate(function):
        @operation("prefetch." + name)
        @functools.wraps(function)
        def run(case, line):
            return function(case, line, case.find(pagedkv.PrefetchSession, line["session"]))

        return run

    return decorate


@on_session("close")
def prefetch_close(case, line, session):
    _core.prefetch_close(session, case.sync(line))


@on_session("cancel")
def prefetch_cancel(case, line, session):
    session.cancel()


@on_session("prompt")
def prefetch_prompt(case, line, session):
    queue = case.find(pagedkv.Queue, line["queue"]) if "queue" in line else None
    op = case.make(
        pagedkv.Op, line["op"], lambda: session.prompt(**prompt(line), queue=queue, user=line.number("user"))
    )
    return {"match": op.match.tokens, "resident": op.match.resident_tokens}


@on_session("hint")
def prefetch_hint(case, line, session):
    session.hint(case.find(pagedkv.Table, line["table"]), line.list("scores"))


@on_session("submit")
def prefetch_submit(case, line, session):
    return {"submitted": session.submit(case.find(pagedkv.Table, line["table"]), line.number("position"))}


@on_session("require")
def prefetch_require(case, line, session):
    result = session.require(
        case.find(pagedkv.Table, line["table"]),
        line.number("first_block"),
        line.number("num_blocks", MAX),
        line.seconds("timeout"),
    )
    return {"resident": result.resident, "absent": result.on_time + result.late + result.on_demand}


@on_session("step_begin")
def prefetch_step_begin(case, line, session):
    tables = [case.find(pagedkv.Table, name) for name in line["tables"].split(",")]
    statuses = session.step_begin(tables, line.list("num_tokens") or None)
    return {"statuses": listed(map(short, statuses))}


@on_session("acquire")
def prefetch_acquire(case, line, session):
    view = session.layer_acquire(line.number("index"), line.seconds("timeout"))
    return {
        "group": view.group,
        "layer": view.layer,
        "num_tables": view.num_tables,
        "num_slices": len(view.slices),
        "missing": sum(one < 0 for one in view.slices),
        "last": int(view.last),
    }


@on_session("release")
def prefetch_release(case, line, session):
    session.layer_release(line.number("index"), case.sync(line))


@on_session("step_end")
def prefetch_step_end(case, line, session):
    return rows_result(session.step_end())


@on_session("stats")
def prefetch_stats(case, line, session):
    stats = session.stats()
    balance = stats.needed - stats.on_time - stats.late - stats.on_demand
    return {**pagedkv.as_dict(stats), "balance": balance}


# ---- the file ----


def run_line(case, text):
    """What a line gave that is not as wanted, and how many checks it has."""
    left, _, right = text.partition("->")
    name, *words = left.split()
    line = Line(word.split("=", 1) for word in words)
    wanted = dict(word.split("=", 1) for word in right.split())
    status, outputs = "OK", {}
    try:
        outputs = OPERATIONS[name](case, line) or {}
    except pagedkv.PagedKVError as error:
        status, outputs = short(error.status), getattr(error, "outputs", {})
    wrong = []
    if status != wanted.get("status", "OK"):
        wrong.append(f"status is {status}, not {wanted.get('status', 'OK')}")
    for key, value in wanted.items():
        if key != "status" and str(outputs.get(key)) != expanded(value):
            wrong.append(f"{key} is {outputs.get(key)}, not {expanded(value)}")
    return wrong, 1 + len(wanted) - ("status" in wanted)


def main(path):
    cases = checks = failed = 0
    case, name = Case(), ""
    with open(path, encoding="utf-8") as file:
        for number_of_line, text in enumerate(file, 1):
            text = text.partition("#")[0].strip()
            if not text:
                continue
            if text.startswith("case "):
                case.end()
                case, name = Case(), text[5:]
                cases += 1
                continue
            wrong, count = run_line(case, text)
            checks += count
            failed += len(wrong)
            for what in wrong:
                print(f"FAIL {name}, line {number_of_line}: {text.split()[0]}: {what}")
    case.end()
    print(f"conformance: {cases} cases, {checks} checks, {failed} failed")
    return 0 if cases and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
