#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the Rust crates take from the headers of the library, documentation included.

    generate.py           writes the files
    generate.py --check   compares them with what is there; status 1 if one differs

  pagedkv-sys/src/c/*.rs        a module for each header: constants, structs, their INIT values, functions
  pagedkv-sys/tests/layout/fields.rs   names of all structs, fields, INIT values and constants, for tests/layout/main.rs
  pagedkv/src/codes.rs          enums for numbers, PKV_DTYPE_* and the like
  pagedkv/src/records.rs        structs that only tell something: statistics, infos, results

The headers keep to a small part of C, and this reads just that part: what it does not understand ends it with a message.
"""

import difflib
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HEADERS = os.path.join(HERE, "..", "..", "include", "pagedkv")
MARK = "// SPDX-License-Identifier: Apache-2.0\n// Written by generate.py from the headers: not to be edited.\n"
WIDTH = 116

# ---- what the safe crate shows ---------------------------------------------------------------------------------------

# Enums: name, prefix of the constants, the one that is Default, documentation. In the order of the constants.
ENUMS = [
    ("Status", "PKV_ERR_", None, "Why a call failed. Names and numbers never change once released."),
    ("DType", "PKV_DTYPE_", "F16", "Type of the elements of a row."),
    ("Layout", "PKV_LAYOUT_", "NHD", "Order inside one layer of one page."),
    ("HugePages", "PKV_HUGE_PAGES_", "AUTO", "Memory in huge pages."),
    ("PageState", "PKV_PAGE_", "FREE", "What a page is at present."),
    ("MemoryKind", "PKV_MEMORY_KIND_", "NONE", "What the pages of a group lie in."),
    ("KeySeed", "PKV_KEY_SEED_", "RANDOM", "Where the seed of a pool's prefix keys comes from."),
    ("EventKind", "PKV_EVENT_", "STORED", "What happened to a block of the prefix index."),
    ("IoEngine", "PKV_IO_", "AUTO", "How a file tier reads and writes."),
    ("Prediction", "PKV_PREDICT_", "SEQUENTIAL", "Which blocks of a sequence are predicted to be needed next."),
    ("LogLevel", "PKV_LOG_", None, "How serious a message is."),
    ("OpState", "PKV_OP_", "RUNNING", "Whether an operation is under way."),
    ("Fault", "PKV_FAULT_", "NONE", "What a fault hook asks for."),
    ("TierRequestKind", "PKV_TIER_", "LOOKUP", "What a batch asks of a tier."),
    ("WritePolicy", "PKV_TIER_", "WRITE_BACK", "When a pool stores images of published blocks in a tier."),
]
# Of prefixes that several groups of constants share: the comment that the group begins with, or names.
ENUM_ONLY = {
    "PageState": ["FREE", "HELD", "CACHED"],
    "TierRequestKind": ["LOOKUP", "STORE", "LOAD", "REMOVE", "UNPIN", "RETAIN", "PROBE", "CLEAR"],
    "WritePolicy": ["WRITE_BACK", "WRITE_THROUGH", "WRITE_ON_HITS", "DEMOTE", "READ_ONLY"],
}

# Records: C struct, name, fields that are no numbers.
RECORDS = [
    ("pkv_strides", "Strides", {}),
    ("pkv_histogram", "Histogram", {}),
    ("pkv_key", "Key", {}),
    ("pkv_match", "Match", {}),
    ("pkv_page_info", "PageInfo", {"state": "PageState", "published": "bool", "pinned": "bool"}),
    ("pkv_clear_result", "ClearResult", {}),
    ("pkv_event", "Event", {"kind": "EventKind"}),
    ("pkv_page_copy", "PageCopy", {}),
    ("pkv_table_info", "TableInfo", {}),
    ("pkv_spill_result", "SpillResult", {}),
    ("pkv_require_result", "RequireResult", {}),
    ("pkv_pool_stats", "PoolStats", {"memory_kind": "MemoryKind", "key_seed": "KeySeed"}),
    ("pkv_tier_usage", "TierUsage", {"engine": "IoEngine", "registered_buffers": "bool"}),
    ("pkv_tier_stats", "TierStats", {"resting": "bool"}),
    ("pkv_prefetch_stats", "PrefetchStats", {}),
    ("pkv_node_stats", "NodeStats", {"provider": "String"}),
    ("pkv_node_peer", "NodePeer", {"address": "String", "name": "String", "connected": "bool", "status": "Ended"}),
    ("pkv_offer_info", "OfferInfo", {"status": "Ended"}),
    ("pkv_op_info", "OpInfo", {"state": "OpState", "status": "Ended", "buffers_free": "bool"}),
]
# Documentation of records that have none in the headers.
RECORD_DOCS = {
    "pkv_clear_result": "What forgetting a namespace came to.",
    "pkv_event": "Something that happened to the prefix index of a pool.",
    "pkv_page_info": "State of one page.",
    "pkv_table_info": "A table's numbers.",
    "pkv_spill_result": "What moving blocks into tiers came to.",
    "pkv_require_result": "Where the blocks were that were required.",
    "pkv_pool_stats": "Statistics of a pool, of one moment.",
    "pkv_node_stats": "Numbers of a node.",
    "pkv_node_peer": "A node to read from.",
    "pkv_offer_info": "State of an offer.",
    "pkv_op_info": "State of an operation.",
}
# The same for fields.
FIELD_DOCS = {
    ("pkv_strides", "page"): "From page to page.",
    ("pkv_strides", "token"): "From token to token.",
    ("pkv_strides", "head"): "From head to head.",
    ("pkv_histogram", "count"): "Times that were counted.",
    ("pkv_histogram", "sum_ns"): "Their sum.",
    ("pkv_key", "low"): "The low 64 bits.",
    ("pkv_key", "high"): "The high 64 bits.",
    ("pkv_page_copy", "group"): "Layer group.",
    ("pkv_page_copy", "src"): "The page to be read.",
    ("pkv_page_copy", "dst"): "The page to be written.",
    ("pkv_require_result", "waited_ns"): "Time that the call waited.",
    ("pkv_pool_stats", "num_pages"): "Pages of the group.",
    ("pkv_pool_stats", "free_pages"): "Of them, those without content.",
    ("pkv_pool_stats", "held_pages"): "Of them, those that somebody holds.",
    ("pkv_pool_stats", "cached_pages"): "Of them, those that are found by lookups and may be evicted.",
    ("pkv_tier_usage", "pinned_images"): "Images that have to stay.",
    ("pkv_tier_stats", "usage"): "What the tier says of itself.",
    ("pkv_tier_stats", "failed_stores"): "Stores that failed.",
    ("pkv_tier_stats", "bytes_stored"): "Bytes of images stored.",
    ("pkv_prefetch_stats", "steps"): "Steps over layers.",
    ("pkv_prefetch_stats", "prompts"): "Prompts that were to be loaded.",
    ("pkv_prefetch_stats", "good_loads"): "Loads that gave what was wanted.",
    ("pkv_prefetch_stats", "failed_loads"): "Loads that did not.",
    ("pkv_prefetch_stats", "bytes_in_flight"): "Bytes of loads under way.",
    ("pkv_prefetch_stats", "loads_in_flight"): "Loads under way.",
    ("pkv_node_stats", "expired_leases"): "Leases that ended by time.",
    ("pkv_node_stats", "failed_reads"): "Reads that gave nothing.",
    ("pkv_node_stats", "bytes_read"): "Bytes read from others.",
    ("pkv_node_stats", "late_answers"): "Answers that came after their time.",
    ("pkv_node_peer", "address"): "Where it listens.",
    ("pkv_node_stats", "expired_offers"): "Offers that ended by time.",
    ("pkv_offer_info", "failed_pulls"): "That did not.",
    ("pkv_op_info", "num_items"): "Items of the operation.",
}
TO_C = {"pkv_strides", "pkv_key", "pkv_tier_usage"}  # records that also go into the library
OBJECTS = {"pool": "Pool", "table": "Table", "batch": "Batch", "tier": "Tier", "prefetch": "Session", "node": "Node",
           "op": "Op", "queue": "Queue", "trace": "Trace", "offer": "Offer"}
RENAMES = {
    "pkv_table_offer": "Node::offer", "pkv_table_pull": "Node::pull", "pkv_pull_table": "Pull::table",
    "pkv_pool_get_stats": "Pool::stats", "pkv_table_get_info": "Table::info", "pkv_stats_prometheus": "Prometheus",
    "pkv_prefetch_step_end": "Step::end", "pkv_table_take_copies": "Table::take_copies", "pkv_sync": "When",
    "pkv_prefetch_stats": "PrefetchStats", "pkv_pool_stats": "PoolStats", "pkv_dtype_bytes": "DType::bytes",
    "pkv_pool_options": "PoolOptions", "pkv_group_options": "GroupOptions", "pkv_retention": "Retention",
    "pkv_file_tier_options": "FileTierOptions", "pkv_prefetch_options": "SessionOptions", "pkv_tier_complete": "TierItem::complete",
    "PKV_OK": "Ok", "PKV_MATCH_ALL": "MATCH_ALL", "PKV_NO_PAGE": "NO_PAGE", "PKV_NO_SLOT": "NO_SLOT",
    "PKV_ADMIT_RETRY": "AdmitOptions::retry", "PKV_ADMIT_SHARE": "AdmitOptions::share", "PKV_TIER_PIN": "TierBatch::pin",
    "PKV_TIER_FORCE": "TierBatch::force", "PKV_NODE_PROMOTE": "NodeOptions::promote", "PKV_TIER_TAG_ALL": "TAG_ALL",
    "PKV_CLUSTER_KEY_BYTES": "32", "PKV_MAX_TIERS": "MAX_TIERS",
}

# ---- reading ---------------------------------------------------------------------------------------------------------


def die(where, what):
    sys.exit(f"generate.py: {where}: cannot read: {what.strip()[:200]}")


class Header:
    """A header, as lists of what it declares. Items are (kind, name, ..., documentation)."""

    def __init__(self, name, text):
        self.name = name
        self.doc = ""
        self.items = []
        self.read(text)

    TOKEN = re.compile(r"""
        (?P<comment>/\*.*?\*/) | (?P<define>\#define[ ](?:[^\n]*\\\n)*[^\n]*) | (?P<other>\#[^\n]*) | (?P<space>\s+) |
        (?P<code>[^\s#/])""", re.X | re.S)

    def read(self, text):
        text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
        text = re.sub(r"#if defined\(__GNUC__\)\n.*?#endif\n", "", text, flags=re.S)
        at, doc, group, end_of_last = 0, None, "", 0
        while at < len(text):
            match = self.TOKEN.match(text, at)
            if not match:
                die(self.name, text[at:])
            kind = match.lastgroup
            if kind == "comment":
                comment = match.group()
                if comment.startswith("/**<"):
                    die(self.name, comment)
                elif comment.startswith("/** @file"):
                    self.doc = clean(comment)
                elif comment.startswith("/**"):
                    doc = clean(comment)
                else:
                    group = "" if "----" in comment or "SPDX" in comment else clean(comment)
                at = match.end()
            elif kind == "space":
                if match.group().count("\n") > 1 and doc is None:
                    group = ""
                at = match.end()
            elif kind == "other":
                at = match.end()
            elif kind == "define":
                line = match.group()
                at = match.end()
                if "/*" in line:  # a comment that may go on over several lines
                    begin = match.start() + line.index("/*")
                    at = text.index("*/", begin) + 2
                    line, trailing = text[match.start():begin], text[begin:at]
                    if not trailing.startswith("/**<"):
                        die(self.name, trailing)
                    own = clean(trailing)
                else:
                    own = doc or ""
                    doc = None
                self.define(re.sub(r"\\\n", " ", line), own or group)
            else:
                at = self.declaration(text, at, doc or "")
                doc = None

    def define(self, line, doc):
        match = re.fullmatch(r"#define (\w+)(\(.*\))?\s*(.*?)\s*", line, re.S)
        name, arguments, value = match.groups()
        if arguments or name.startswith("PAGEDKV_") or name == "PKV_API":
            return
        if value.startswith("{"):
            self.items.append(("init", name, value, doc))
        else:
            self.items.append(("const", name, value, doc))

    def declaration(self, text, at, doc):
        struct = re.compile(r"typedef struct (\w+) \{\n(.*?)\n\} (\w+);", re.S).match(text, at)
        if struct:
            name, body, alias = struct.groups()
            if name != alias:
                die(self.name, struct.group())
            self.items.append(("struct", name, self.fields(name, body), doc))
            return struct.end()
        end = text.index(";", at)
        code = " ".join(text[at:end].split())
        after = end + 1
        trailing = re.compile(r"[ \t]*(/\*\*<.*?\*/)", re.S).match(text, after)
        if trailing:
            doc, after = clean(trailing.group(1)), trailing.end()
        opaque = re.fullmatch(r"typedef struct (\w+) (\w+)", code)
        function = re.fullmatch(r"PKV_API (.*?)(\w+)\((.*)\)", code)
        callback = re.fullmatch(r"typedef (.*?)\(\*(\w+)\)\((.*)\)", code)
        alias = re.fullmatch(r"typedef (\w+) (\w+)", code)
        if opaque:
            self.items.append(("opaque", opaque.group(1), doc))
        elif function:
            result, name, arguments = function.groups()
            self.items.append(("function", name, self.arguments(arguments), self.result(result), doc))
        elif callback:
            result, name, arguments = callback.groups()
            self.items.append(("callback", name, self.arguments(arguments), self.result(result), doc))
        elif alias:
            self.items.append(("alias", alias.group(2), rust_type(alias.group(1), self.name), doc))
        else:
            die(self.name, code)
        return after

    def fields(self, struct, body):
        """(name, type, documentation) of each; type is Rust's."""
        out, doc, at = [], "", 0
        token = re.compile(r"\s*(?:(?P<comment>/\*.*?\*/)|(?P<field>[^;/]*);(?:[ \t]*(?P<trailing>/\*\*<.*?\*/))?)", re.S)
        while body[at:].strip():
            match = token.match(body, at)
            if not match:
                die(f"{self.name}: {struct}", body[at:])
            at = match.end()
            if match.group("comment"):
                comment = match.group("comment")
                doc = clean(comment) if comment.startswith("/**") else ""
                continue
            code = " ".join(match.group("field").split())
            if match.group("trailing"):
                doc = clean(match.group("trailing"))
            pointer = re.fullmatch(r"(.*?)\(\*(\w+)\)\((.*)\)", code)
            if pointer:
                result, name, arguments = pointer.groups()
                kind = function_type(self.arguments(arguments), self.result(result))
            else:
                name, kind = self.declarator(code)
            out.append((name, kind, doc))
            doc = ""
        return out

    def declarator(self, code):
        match = re.fullmatch(r"(.*?)(\w+)(?:\[(\w+)\])?", code)
        if not match:
            die(self.name, code)
        base, name, count = match.groups()
        kind = rust_type(base, self.name)
        if count:
            kind = f"[{kind}; {count if count.isdigit() else count + ' as usize'}]"
        return name, kind

    def arguments(self, text):
        if text.strip() == "void":
            return []
        pairs = [self.declarator(one.strip()) for one in text.split(",")]
        return [("r#" + name if name in KEYWORDS else name, kind) for name, kind in pairs]

    def result(self, text):
        return "" if text.strip() == "void" else rust_type(text, self.name)


KEYWORDS = {"match", "type", "ref", "move", "use", "where", "in", "fn", "loop", "box", "mod", "self", "impl"}
BASE = {"void": "c_void", "char": "c_char", "int32_t": "i32", "uint32_t": "u32", "uint64_t": "u64", "int64_t": "i64",
        "uint8_t": "u8", "float": "f32", "double": "f64", "size_t": "usize"}


def rust_type(code, where):
    words = re.findall(r"\w+|\*", code)
    words = [word for word in words if word != "struct"]
    constant = words[:1] == ["const"]
    if constant:
        words = words[1:]
    if not words or words[0] == "*":
        die(where, code)
    base, rest = words[0], words[1:]
    if base in BASE:
        kind = BASE[base]
    elif base.startswith("pkv_"):
        kind = base
    else:
        die(where, code)
    while rest:
        if rest[0] != "*":
            die(where, code)
        kind = ("*const " if constant else "*mut ") + kind
        constant = rest[1:2] == ["const"]
        rest = rest[2:] if constant else rest[1:]
    return kind


def function_type(arguments, result):
    inner = ", ".join(f"{name}: {kind}" for name, kind in arguments)
    return f"Option<unsafe extern \"C\" fn({inner}){' -> ' + result if result else ''}>"


def clean(comment):
    """The text of a comment; the first line and those that go on below it begin in the same column."""
    lines = re.sub(r"^/\*\*?<?|\*/$", "", comment).split("\n")
    first = re.sub(r"^ ?@file [\w.]+", "", lines[0]).strip()
    rest = []
    for line in lines[1:]:
        stripped = re.sub(r"^\s*\*\s?", "", line) if line.lstrip().startswith("*") else line.strip()
        rest.append(stripped.rstrip())
    indents = [len(line) - len(line.lstrip()) for line in rest if line]
    cut = min(indents) if indents else 0
    return "\n".join([first] + [line[cut:] for line in rest]).strip("\n")


# ---- documentation ---------------------------------------------------------------------------------------------------


def code_spans(text, rename):
    """Markdown that shows the text as it is, with names set as code."""
    out = []
    for i, piece in enumerate(re.split(r"(`[^`]*`|https?://[^\s,;)]+)", text)):
        if i % 2 and piece.startswith("http"):
            out.append(f"<{piece.rstrip('.')}>" + piece[len(piece.rstrip('.')):])
            continue
        if i % 2:
            name = piece.strip("`")
            out.append(f"`{rename(name) or name}`")
            continue
        piece = re.sub(r"([\[\]*<>])", r"\\\1", piece)
        name = r"\b(?:pkv_\w+(?:\.\w+)?(?:\(\))?|PKV_\w+(?:\\\*)?|PKV_\\\*_\w+)"
        piece = re.sub(name, lambda found: f"`{rename(found.group().replace(chr(92), '')) or found.group().replace(chr(92), '')}`", piece)
        out.append(piece)
    return "".join(out)


def c_name(name):
    return None


def rust_name(name):
    """What the safe crate calls something of the C API."""
    bare = name[:-2] if name.endswith("()") else name
    struct, _, field = bare.partition(".")
    if bare in RENAMES:
        return RENAMES[bare]
    if field and struct in RENAMES:
        return RENAMES[struct] + "::" + field
    match = re.fullmatch(r"pkv_(pool|table|batch|tier|prefetch|node|op|queue|trace|offer)_(\w+)", bare)
    if match:
        return f"{OBJECTS[match.group(1)]}::{match.group(2)}"
    for enum, prefix, _, _ in ENUMS:
        tail = bare[len(prefix):]
        if bare.startswith(prefix) and tail and (enum not in ENUM_ONLY or tail in ENUM_ONLY[enum]):
            return enum if tail == "*" else f"{enum}::{camel(tail)}"
    return None


def markdown(text, rename=c_name):
    """A header's comment as lines of Markdown: what is set in by two columns is code, but below a list it goes on with it."""
    out, block, shape, item = [], [], None, ""

    def flush():
        nonlocal block
        if not block:
            return
        said = shape == "said"
        if out and not (said and out[-1].startswith(("* ", "  "))):
            out.append("")
        if shape == "code":
            cut = min(len(line) - len(line.lstrip()) for line in block)
            out.extend(["```text"] + [line[cut:] for line in block] + ["```"])
        elif said:
            words = " ".join(block).split()
            if words[0] == "@return":
                head, rest = "Returns", words[1:]
            else:
                count = next(i for i, word in enumerate(words) if i > 0 and not word.endswith(","))
                head, rest = " ".join(f"`{word.rstrip(',')}`" + "," * word.endswith(",") for word in words[1:count + 1]) + ":", words[count + 1:]
            out.extend(wrap(f"* {head} {code_spans(' '.join(rest), rename)}", "  "))
        else:
            first = block[0] if shape == "list" and re.match(r"(\d+\.|-) ", block[0]) else item + block[0]
            out.extend(wrap(code_spans(" ".join([first] + block[1:]), rename), item, first))
        block = []

    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        marker = re.match(r"\s*(\d+\.|-) ", line)
        if not line.strip():
            flush()
            shape = "list" if shape == "list" else "text"
        elif "@param" in line or "@return" in line:
            before, at, after = re.split(r"(@param|@return)", line, maxsplit=1)
            if before.strip():
                if shape != "text":
                    flush()
                    shape, item = "text", ""
                block.append(before.strip())
            flush()
            shape, block = "said", [at + after]
        elif shape == "said" and indent >= 2:
            block.append(line.strip())
        elif marker and shape != "code":
            flush()
            block, shape, item = [line.strip()], "list", " " * len(marker.group().lstrip())
        elif indent >= 2 and not (item and indent <= len(item)):
            if shape != "code":
                flush()
                shape = "code"
            block.append(line)
        else:
            if shape not in ("text", "list"):
                flush()
                shape = "list" if item and indent else "text"
            if not indent and not (shape == "list" and block):
                item = ""
            block.append(line.strip())
    flush()
    return out


def wrap(text, indent="", begin=None):
    """Lines of a paragraph; those after the first begin with `indent`, and the first as `begin` does."""
    out, line = [], " " * (len(begin) - len(begin.lstrip())) if begin else ""
    for word in text.split():
        if line.strip() and len(line) + 1 + len(word) > WIDTH - 8:
            out.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line.strip() else line + word
    return out + [line] if line.strip() else out


def doc_lines(text, indent="", mark="///", rename=c_name, otherwise=""):
    lines = markdown(text, rename) or ([otherwise] if otherwise else [])
    return "".join(f"{indent}{mark}{' ' + line if line else ''}\n" for line in lines)


def upper_first(text):
    """As a sentence begins, but for names."""
    first = (text.split() or [""])[0]
    return text[:1].upper() + text[1:] if re.fullmatch(r"[a-z'-]+[,:;.]?", first) and first != "pread" else text


# ---- pagedkv-sys -----------------------------------------------------------------------------------------------------


def constant(name, value, where):
    """Rust's type and value."""
    if value.startswith('"'):
        return "&CStr", value
    cast = re.fullmatch(r"\(\((pkv_\w+)\)(-?\d+)\)", value)
    if cast:
        return cast.group(1), cast.group(2)
    if value in ("UINT32_MAX", "UINT64_MAX"):
        kind = "u" + value[4:6]
        return kind, kind + "::MAX"
    if re.fullmatch(r"\d+u", value):
        return "u32", value[:-1]
    shift = re.fullmatch(r"\((\d+)u << (\d+)\)", value)
    if shift:
        return "u32", f"{shift.group(1)} << {shift.group(2)}"
    if re.fullmatch(r"\(?-?\d+\)?", value):
        kind = "pkv_status" if name == "PKV_OK" or name.startswith("PKV_ERR_") else "i32"
        return kind, value.strip("()")
    if re.fullmatch(r"\([\w\s*+]+\)", value):
        return "i32", value[1:-1]
    die(where, f"{name} {value}")


def split_init(text):
    """The parts of a brace initialiser."""
    parts, depth, part = [], 0, ""
    for char in text.strip()[1:-1]:
        depth += char in "{(" 
        depth -= char in "})"
        if char == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    return parts + ([part.strip()] if part.strip() else [])


class Model:
    def __init__(self, headers):
        self.headers = headers
        self.structs = {}
        self.consts = {}
        self.inits = {}
        for header in headers:
            for item in header.items:
                if item[0] == "struct":
                    self.structs[item[1]] = item[2]
                elif item[0] == "const":
                    self.consts[item[1]] = item
                elif item[0] == "init":
                    self.inits[item[1]] = item[2]

    def struct_of(self, init):
        name = init.lower()[:-len("_init")]
        if name not in self.structs:
            die(init, "an INIT value without its struct")
        return name

    def value(self, kind, text, where):
        """A member's initial value in Rust."""
        if kind in self.structs:
            if text in self.inits:
                return text
            return self.struct_value(kind, text, where)
        array = re.fullmatch(r"\[(.*); (.*)\]", kind)
        if array:
            if set(text) - set("{}0, "):
                die(where, text)
            return f"[0; {array.group(2)}]"
        if kind.startswith("Option<") or kind in ("pkv_file_fault", "pkv_log_function"):
            return "None" if text == "NULL" else die(where, text)
        if kind.startswith("*"):
            return ("ptr::null_mut()" if kind.startswith("*mut") else "ptr::null()") if text == "NULL" else die(where, text)
        size = re.fullmatch(r"sizeof\((\w+)\)", text)
        if size:
            return f"size_of::<{size.group(1)}>()"
        if kind == "f64":
            return "0.0" if text in ("0", "0.0") else die(where, text)
        if re.fullmatch(r"\d+|PKV_\w+", text):
            return text if text.isdigit() or constant(text, self.consts[text][2], where)[0] == kind else f"{text} as {kind}"
        die(where, text)

    def struct_value(self, struct, text, where):
        parts = split_init(text)
        fields = self.structs[struct]
        if len(parts) != len(fields):
            die(where, f"{len(parts)} values for the {len(fields)} members of {struct}")
        values = [f"{name}: {self.value(kind, part, where)}" for (name, kind, _), part in zip(fields, parts)]
        return f"{struct} {{ {', '.join(values)} }}"


def sys_module(header, model):
    out = []
    functions = []
    for item in header.items:
        kind, name, doc = item[0], item[1], item[-1]
        if kind == "const":
            rust, value = constant(name, item[2], header.name)
            shown = doc_lines(upper_first(doc), otherwise=f"`{name}` of `{header.name}`.")
            if rust == "&CStr":
                out.append(f"{shown}pub const {name}: &str = {value};\n")
            else:
                out.append(f"{shown}pub const {name}: {rust} = {value};\n")
        elif kind == "alias":
            out.append(f"{doc_lines(upper_first(doc), otherwise=f'`{name}`.')}pub type {name} = {item[2]};\n")
        elif kind == "callback":
            out.append(f"{doc_lines(doc, otherwise='A function of the caller.')}pub type {name} = {function_type(item[2], item[3])};\n")
        elif kind == "opaque":
            if name in model.structs:
                continue
            shown = doc_lines(upper_first(doc), otherwise="Known by its address alone.")
            out.append(f"{shown}#[repr(C)]\npub struct {name} {{\n    _private: [u8; 0],\n    _marker: Opaque,\n}}\n")
        elif kind == "struct":
            body = "".join(doc_lines(upper_first(field_doc), "    ", otherwise=f"`{field}`.") + f"    pub {field}: {field_kind},\n"
                           for field, field_kind, field_doc in item[2])
            shown = doc_lines(doc, otherwise=f"See the functions that take a `{name}`.")
            out.append(f"{shown}#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {name} {{\n{body}}}\n")
        elif kind == "init":
            struct = model.struct_of(name)
            out.append(f"/// Initial value of [`{struct}`].\npub const {name}: {struct} = {model.struct_value(struct, item[2], header.name)};\n")
        elif kind == "function":
            arguments = ", ".join(f"{argument}: {rust}" for argument, rust in item[2])
            result = f" -> {item[3]}" if item[3] else ""
            functions.append(doc_lines(doc, "    ", otherwise="See the header.") + f"    pub fn {name}({arguments}){result};\n")
    if functions:
        out.append("extern \"C\" {\n" + "\n".join(functions) + "}\n")
    return MARK + doc_lines(header.doc, mark="//!") + "\n#[allow(unused_imports)]\nuse super::*;\n\n" + "\n".join(out)


def sys_mod(headers):
    names = [header.name[:-2] for header in headers]
    uses = "".join(f"pub use {name}::*;\n" for name in names)
    mods = "".join(f"pub mod {name};\n" for name in names)
    return (MARK + "//! A module for each header; everything is also in the crate's root.\n\n"
            "#[allow(unused_imports)]\nuse std::{\n    mem::size_of,\n    os::raw::{c_char, c_void},\n    ptr,\n};\n\n"
            "/// What makes a type one of unknown size and use.\n"
            "type Opaque = std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>;\n\n" + mods + "\n" + uses)


def sys_fields(headers, model):
    out = [MARK, "// What main.rs compares with a C compiler's.\n\n"]
    structs = sorted(model.structs)
    out.append("each_struct! {\n" + "".join(
        f"    {name} {{ {', '.join(field for field, _, _ in model.structs[name])} }}\n" for name in structs) + "}\n\n")
    out.append("each_init! {\n" + "".join(f"    {name}: {model.struct_of(name)} {{ {', '.join(f for f, _, _ in model.structs[model.struct_of(name)])} }}\n"
                                          for name in sorted(model.inits)) + "}\n\n")
    numbers = [name for name, item in sorted(model.consts.items()) if not item[2].startswith('"')]
    strings = [name for name, item in sorted(model.consts.items()) if item[2].startswith('"')]
    out.append("each_number! {\n" + "".join(f"    {name}\n" for name in numbers) + "}\n\n")
    out.append("each_string! {\n" + "".join(f"    {name}\n" for name in strings) + "}\n")
    return "".join(out)


# ---- pagedkv ---------------------------------------------------------------------------------------------------------


def camel(name):
    if name.startswith("F8_"):
        return name.replace("_", "")
    return "".join(word[:1] + word[1:].lower() for word in name.split("_"))


def codes(model):
    out = [MARK, "//! Numbers of the C API that stand for something.\n\nuse pagedkv_sys as sys;\n\n"]
    for enum, prefix, default, doc in ENUMS:
        only = ENUM_ONLY.get(enum)
        names = [name for name in model.consts if name.startswith(prefix)
                 and (name[len(prefix):] in only if only else True)]
        if not names:
            die("ENUMS", enum)
        variants, to, back = "", "", ""
        for name in names:
            tail = name[len(prefix):]
            text = model.consts[name][3]
            text = "" if text.startswith("pkv_") or text.startswith("What a fault") or text == "Element types." else text
            text = re.split(r"\. pkv_\w+|\* pkv_", text)[0]
            plain = f"`{name}`."
            shown = doc_lines(upper_first(text), "    ", rename=rust_name, otherwise=plain)
            mark = "    #[default]\n" if tail == default else ""
            variants += f"{shown}{mark}    {camel(tail)},\n"
            cast = " as i32" if constant(name, model.consts[name][2], "codes")[0] != "i32" and enum != "Status" else ""
            to += f"            Self::{camel(tail)} => sys::{name}{cast},\n"
            back += f"            sys::{name} => Self::{camel(tail)},\n"
        derive = "Clone, Copy, Debug, PartialEq, Eq, Hash" + (", Default" if default else "")
        out.append(f"/// {doc}\n#[derive({derive})]\n#[non_exhaustive]\npub enum {enum} {{\n{variants}"
                   "    /// A number that this version of the crate does not know.\n    Other(i32),\n}\n\n"
                   f"impl {enum} {{\n    /// The number, as in the C API.\n    pub fn code(self) -> i32 {{\n        match self {{\n{to}"
                   "            Self::Other(code) => code,\n        }\n    }\n\n"
                   "    /// What a number of the C API stands for.\n    pub fn from_code(code: i32) -> Self {\n        match code {\n"
                   f"{back}            _ => Self::Other(code),\n        }}\n    }}\n}}\n\n")
    return "".join(out).rstrip("\n") + "\n"


def records(model):
    names = {struct: name for struct, name, _ in RECORDS}
    struct_docs = {item[1]: item[-1] for header in model.headers for item in header.items if item[0] == "struct"}
    enums = {enum for enum, _, _, _ in ENUMS}
    body, used = [], set()
    for struct, name, special in RECORDS:
        fields, values, back = "", "", ""
        for field, kind, doc in model.structs[struct]:
            if field == "struct_size" or (field == "reserved" and kind in ("i32", "u32")):
                continue
            raw = f"raw.{field}"
            if field in special:
                rust = special[field]
                if rust == "bool":
                    value = f"{raw} != 0"
                elif rust == "String":
                    value = f"text(&{raw})"
                elif rust == "Ended":
                    rust = "Result<(), Status>"
                    used.add("Status")
                    value = f"ended({raw})"
                else:
                    used.add(rust)
                    value = f"{rust}::from_code({raw})"
                into = {"bool": f"record.{field} as _", "String": None}.get(special[field], f"record.{field}.code()")
            elif kind in names:
                rust, value, into = names[kind], f"{raw}.into()", f"record.{field}.into()"
            elif kind.startswith("["):
                rust, value, into = re.sub(r"(PKV_\w+)", r"sys::\1", kind), raw, f"record.{field}"
            elif kind in ("u64", "u32", "i32", "i64", "f64"):
                rust, value, into = kind, raw, f"record.{field}"
            elif kind == "pkv_page":
                rust, value, into = "Page", raw, f"record.{field}"
                used.add("Page")
            else:
                die(struct, f"{field}: {kind}")
            fields += doc_lines(upper_first(doc), "    ", rename=rust_name, otherwise=FIELD_DOCS.get((struct, field), f"`{struct}.{field}`."))
            fields += f"    pub {field}: {rust},\n"
            values += f"            {field}: {value},\n"
            back += f"            {field}: {into},\n"
        plain = not any(kind in ("String", "Ended") for kind in special.values())
        floats = any(kind == "f64" for _, kind, _ in model.structs[struct])
        small = plain and not floats
        derive = "Clone, " + ("Copy, " if plain else "") + "Debug, PartialEq" + (", Eq, Hash" if small or not floats else "")
        text = RECORD_DOCS.get(struct) or struct_docs[struct]
        # What has no struct_size does not grow.
        fixed = struct.upper() + "_INIT" not in model.inits
        derive += ", Default" if fixed else ""
        mark = "" if fixed else "#[non_exhaustive]\n"
        body.append(f"{doc_lines(text, rename=rust_name)}#[derive({derive})]\n{mark}pub struct {name} {{\n{fields}}}\n\n"
                    f"impl From<sys::{struct}> for {name} {{\n    fn from(raw: sys::{struct}) -> Self {{\n        Self {{\n{values}        }}\n    }}\n}}\n\n")
        if struct.upper() + "_INIT" in model.inits:
            body.append(f"impl Default for {name} {{\n    fn default() -> Self {{\n        sys::{struct.upper()}_INIT.into()\n    }}\n}}\n\n")
        if struct in TO_C:
            rest = ", ..sys::" + struct.upper() + "_INIT" if struct.upper() + "_INIT" in model.inits else ""
            body.append(f"impl From<{name}> for sys::{struct} {{\n    fn from(record: {name}) -> Self {{\n        #[allow(clippy::needless_update)]\n"
                        f"        sys::{struct} {{\n{back}{'            ' + rest[2:] + chr(10) if rest else ''}        }}\n    }}\n}}\n\n")
    codes_used = sorted(used & enums)
    uses = f"use crate::codes::{{{', '.join(codes_used)}}};\nuse crate::text::{{ended, text}};\nuse crate::Page;\nuse pagedkv_sys as sys;\n\n"
    return (MARK + "//! What the library tells: statistics, infos, results.\n\n" + uses + "".join(body)).rstrip("\n") + "\n"


# ---- files -----------------------------------------------------------------------------------------------------------


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    names = sorted(name for name in os.listdir(HEADERS) if name.endswith(".h") and name != "pagedkv.h")
    headers = []
    for name in names:
        with open(os.path.join(HEADERS, name), encoding="utf-8") as file:
            headers.append(Header(name, file.read()))
    model = Model(headers)
    files = {f"pagedkv-sys/src/c/{header.name[:-2]}.rs": sys_module(header, model) for header in headers}
    files["pagedkv-sys/src/c/mod.rs"] = sys_mod(headers)
    files["pagedkv-sys/tests/layout/fields.rs"] = sys_fields(headers, model)
    files["pagedkv/src/codes.rs"] = codes(model)
    files["pagedkv/src/records.rs"] = records(model)
    different = 0
    for path, text in sorted(files.items()):
        full = os.path.join(HERE, path)
        old = ""
        if os.path.exists(full):
            with open(full, encoding="utf-8") as file:
                old = file.read()
        if old == text:
            continue
        different += 1
        if check:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), path, "headers say"))
        else:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
    stale = set()
    for folder in ("pagedkv-sys/src/c",):
        if os.path.isdir(os.path.join(HERE, folder)):
            stale |= {f"{folder}/{name}" for name in os.listdir(os.path.join(HERE, folder))} - set(files)
    for path in sorted(stale):
        different += 1
        print(f"{path}: its header is gone")
        if not check:
            os.remove(os.path.join(HERE, path))
    if check and different:
        sys.exit(f"generate.py: {different} files differ from what the headers say: run bindings/rust/generate.py")


if __name__ == "__main__":
    main()
