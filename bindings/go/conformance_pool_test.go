// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"reflect"
	"regexp"
	"strings"
)

var humps = regexp.MustCompile("([a-z0-9])([A-Z])")

// outFields gives the numbers of a struct under their C names.
func outFields(l *line, from any) {
	value := reflect.ValueOf(from)
	for i := 0; i < value.NumField(); i++ {
		name := strings.ToLower(humps.ReplaceAllString(value.Type().Field(i).Name, "${1}_${2}"))
		name = strings.Replace(name, "ioerrors", "io_errors", 1)
		if kind := value.Field(i).Kind(); kind != reflect.Struct {
			l.out(name, value.Field(i).Interface())
		}
	}
}

func (l *line) group() GroupOptions {
	return GroupOptions{NumPages: l.num("num_pages", 0), NumLayers: l.u32("num_layers"), FirstLayer: l.u32("first_layer"),
		TotalLayers: l.u32("total_layers"), NumKVHeads: l.u32("num_kv_heads"), KHeadDim: l.u32("k_head_dim"), VHeadDim: l.u32("v_head_dim"),
		DType: DType(l.name("dtype", dtypeNames, 1, int32(F16))), KRowBytes: l.u32("k_row_bytes"), VRowBytes: l.u32("v_row_bytes"),
		Layout: Layout(l.name("layout", "nhd hnd", 0, 0)), Arrangement: Arrangement(l.name("arrangement", "page_major layer_major", 0, 0)),
		Attention: Attention(l.name("attention", "full window", 0, 0)), Window: l.u32("window"), Sinks: l.u32("sinks"),
		Memory: Memory(l.name("memory", "pool caller none", 0, 0)), KStrides: Strides{Page: l.num("k_page_stride", 0)},
		MaxCachedPages: l.num("max_cached_pages", 0), Scales: Scales(l.name("scales", "none tensor head token_head", 0, 0)),
		AuxBytes: l.u32("aux_bytes")}
}

func createPool(c *testCase, l *line) error {
	options := PoolOptions{PageTokens: l.u32("page_tokens"), Seed: l.num("seed", 0), Debug: l.u32("debug"),
		EventCapacity: l.u32("event_capacity"), CopyThreads: l.u32("copy_threads"), Flags: l.u32("flags"), CleanPages: l.num("clean_pages", 0)}
	if names := l.text("groups", ""); names == "" {
		options.Groups = append(options.Groups, l.group())
	} else {
		for _, name := range strings.Split(names, ",") {
			options.Groups = append(options.Groups, *find[GroupOptions](c, name))
		}
	}
	for _, each := range strings.Split(l.text("tiers", ""), "/") {
		if each != "" {
			name, policy, _ := strings.Cut(each, ":")
			one := &line{args: map[string]string{"policy": policy}, used: map[string]bool{}}
			options.Tiers = append(options.Tiers, TierAttachment{Tier: find[Tier](c, name), Hits: l.u32("hits"),
				Policy: TierPolicy(one.name("policy", "write_back write_through write_on_hits demote read_only", 0, 0))})
		}
	}
	pool, err := made(NewPool(options))
	c.make(l, "pool", pool)
	return err
}

func move(c *testCase, l *line, begin func(*Pool, uint32, []TierKey, []int32, *Sync, *OpOptions) (*Op, error)) error {
	pool, pages, sync, options := get[Pool](c, l, "pool"), l.i32s("pages"), c.sync(l), l.opOptions(c)
	keys, err := pool.ImageKeys(l.u32("group"), l.prompt())
	op := &Op{}
	if err == nil {
		op, err = made(begin(pool, l.u32("group"), keys, pages, sync, options))
	}
	c.make(l, "op", op)
	return err
}

func (l *line) opOptions(c *testCase) *OpOptions {
	options := &OpOptions{User: l.num("user", 0), Timeout: l.after("timeout", 0)}
	if l.has("queue") {
		options.Queue = get[Queue](c, l, "queue")
	}
	return options
}

var poolOperations = map[string]operation{
	"group": func(c *testCase, l *line) error {
		group := l.group()
		c.make(l, "group", &group)
		return nil
	},
	"pool.create":  createPool,
	"pool.destroy": func(c *testCase, l *line) error { return get[Pool](c, l, "pool").Close() },
	"pool.quiesce": func(c *testCase, l *line) error { return get[Pool](c, l, "pool").Quiesce(l.after("timeout", 0)) },
	"pool.flush":   func(c *testCase, l *line) error { return get[Pool](c, l, "pool").Flush(l.after("timeout", 0)) },
	"pool.layout": func(c *testCase, l *line) error {
		layout, err := get[Pool](c, l, "pool").Layout(l.u32("group"), l.u32("layer"))
		if err != nil {
			return err
		}
		for side, strides := range map[string]Strides{"k": layout.K, "v": layout.V} {
			l.out(side+"_page_stride", strides.Page)
			l.out(side+"_token_stride", strides.Token)
			l.out(side+"_head_stride", strides.Head)
		}
		l.out("k_row_bytes", layout.KRowBytes)
		l.out("v_row_bytes", layout.VRowBytes)
		l.out("num_kv_heads", layout.NumKVHeads)
		l.out("page_tokens", layout.PageTokens)
		l.out("dtype", int32(layout.DType))
		l.out("scale_page_stride", layout.ScalePageStride)
		l.out("has_memory", layout.KBase != 0)
		return nil
	},
	"pool.alloc": func(c *testCase, l *line) error {
		pages, err := get[Pool](c, l, "pool").Alloc(l.u32("group"), l.num("num_pages", 0))
		outList(l, "pages", pages)
		return err
	},
	"pool.retain": func(c *testCase, l *line) error {
		return get[Pool](c, l, "pool").Retain(l.u32("group"), l.i32s("pages"))
	},
	"pool.release": func(c *testCase, l *line) error {
		pool, pages := get[Pool](c, l, "pool"), l.i32s("pages")
		if l.num("each", 0) == 0 {
			return pool.Release(l.u32("group"), pages, c.sync(l))
		}
		statuses, err := pool.ReleaseEach(l.u32("group"), pages, c.sync(l))
		outList(l, "statuses", statuses)
		return firstOf(statuses, err)
	},
	"pool.page_info": func(c *testCase, l *line) error {
		info, err := get[Pool](c, l, "pool").PageInfo(l.u32("group"), int32(l.num("page", 0)))
		if err == nil {
			outFields(l, info)
		}
		return err
	},
	"pool.lookup": func(c *testCase, l *line) error {
		pages, match, err := get[Pool](c, l, "pool").Lookup(l.prompt(), l.num("max_match", 0), l.num("capacity", 16))
		if err != nil {
			return err
		}
		l.outMatch(match)
		outList(l, "pages", pages[0])
		if l.num("groups", 1) > 1 {
			outList(l, "pages1", pages[1])
		}
		return nil
	},
	"pool.probe": func(c *testCase, l *line) error {
		match, err := get[Pool](c, l, "pool").Probe(l.prompt(), l.num("max_match", 0))
		if err == nil {
			l.outMatch(match)
		}
		return err
	},
	"pool.publish": func(c *testCase, l *line) error {
		owner, err := get[Pool](c, l, "pool").Publish(l.u32("group"), l.prompt(), l.num("first_block", 0), l.i32s("pages"))
		outList(l, "owner", owner)
		return err
	},
	"pool.evict": func(c *testCase, l *line) error {
		evicted, err := get[Pool](c, l, "pool").Evict(l.u32("group"), l.num("num_pages", 0))
		l.out("evicted", evicted)
		return err
	},
	"pool.set_retention": func(c *testCase, l *line) error {
		blocks, err := get[Pool](c, l, "pool").SetRetention(l.prompt(), l.num("first_token", 0), l.num("num_tokens", All), l.retention())
		l.out("blocks", blocks)
		return err
	},
	"pool.set_namespace_retention": func(c *testCase, l *line) error {
		retention := l.retention()
		if l.num("none", 0) != 0 {
			retention = nil
		}
		return get[Pool](c, l, "pool").SetNamespaceRetention(l.namespace(), retention)
	},
	"pool.clear": func(c *testCase, l *line) (err error) {
		var result ClearResult
		if l.num("all", 0) != 0 {
			result, err = get[Pool](c, l, "pool").ClearAll()
		} else {
			result, err = get[Pool](c, l, "pool").Clear(l.namespace())
		}
		outFields(l, result)
		return err
	},
	"pool.keys": func(c *testCase, l *line) error {
		keys := make([]Key, l.num("capacity", 64))
		count, err := get[Pool](c, l, "pool").keys(l.prompt(), keys)
		l.out("num_keys", count)
		if err == nil && len(keys) != 0 {
			l.out("digest", fnv1a(memoryOf(keys[:count])))
		}
		return err
	},
	"pool.image_keys": func(c *testCase, l *line) error {
		keys := make([]TierKey, l.num("capacity", 64))
		count, err := get[Pool](c, l, "pool").imageKeys(l.u32("group"), l.prompt(), keys)
		l.out("num_keys", count)
		if err == nil && len(keys) != 0 {
			l.out("digest", fnv1a(memoryOf(keys[:count])))
		}
		return err
	},
	"pool.events": func(c *testCase, l *line) error {
		events, missed, err := get[Pool](c, l, "pool").Events(l.num("after", 0), int(l.num("capacity", 64)))
		if err != nil {
			return err
		}
		var kinds []int32
		var blocks []uint64
		last := uint64(0)
		for _, event := range events {
			kinds, blocks, last = append(kinds, event.Kind), append(blocks, event.Block), event.Sequence
		}
		l.out("count", len(events))
		l.out("missed", missed)
		outList(l, "kinds", kinds)
		outList(l, "blocks", blocks)
		l.out("last", last)
		return nil
	},
	"pool.write": func(c *testCase, l *line) error {
		pool, slots := get[Pool](c, l, "pool"), l.i64s("slots")
		rows := newPattern(l, pool, l.u32("group"), l.u32("layer"), l.num("position", 0), uint64(len(slots)), true)
		return pool.Write(l.u32("group"), l.u32("layer"), slots, rows.rows[0], rows.rows[1], c.sync(l))
	},
	"pool.gather": func(c *testCase, l *line) error {
		pool, count := get[Pool](c, l, "pool"), l.num("num_tokens", 0)
		rows := newPattern(l, pool, l.u32("group"), l.u32("layer"), 0, count, false)
		err := pool.Gather(l.u32("group"), l.u32("layer"), l.i32s("pages"), l.num("first_token", 0), count, rows.rows[0], rows.rows[1], c.sync(l))
		if err == nil {
			rows.out(l)
		}
		return err
	},
	"pool.copy_pages": func(c *testCase, l *line) error {
		return get[Pool](c, l, "pool").CopyPages(l.u32("group"), l.i32s("src"), l.i32s("dst"), c.sync(l))
	},
	"pool.stats": func(c *testCase, l *line) error {
		stats, err := get[Pool](c, l, "pool").Stats(l.u32("group"))
		if err == nil {
			outFields(l, stats)
		}
		return err
	},
	"pool.store": func(c *testCase, l *line) error { return move(c, l, (*Pool).Store) },
	"pool.load":  func(c *testCase, l *line) error { return move(c, l, (*Pool).Load) },
}
