// SPDX-License-Identifier: Apache-2.0

package pagedkv

var prefetchOperations = map[string]operation{
	"predict": func(c *testCase, l *line) error {
		by := Predictor{PredictPolicy(l.name("policy", "sequential full hinted", 0, 0)), uint32(l.num("page_tokens", 16)), l.num("sink_tokens", 0),
			l.num("recent_tokens", 0), l.num("lookahead", 0)}
		blocks := make([]uint64, l.num("capacity", 64))
		count, err := by.predict(l.num("num_tokens", 0), l.num("position", 0), l.floats("scores"), blocks)
		l.out("num_blocks", count)
		if err == nil && len(blocks) != 0 {
			outList(l, "blocks", blocks[:count])
		}
		return err
	},
	"prefetch.open": func(c *testCase, l *line) error {
		session, err := made(get[Pool](c, l, "pool").Prefetch(&PrefetchOptions{Policy: PredictPolicy(l.name("policy", "sequential full hinted", 0, 0)),
			Flags: l.u32("flags"), SinkTokens: l.num("sink_tokens", 0), RecentTokens: l.num("recent_tokens", 0),
			MaxLookahead: l.num("max_lookahead", 0), MaxBlockPages: l.num("max_block_pages", 0), NumBuffers: l.u32("num_buffers"),
			MaxTables: l.u32("max_tables"), StagingPages: l.u64s("staging")}))
		c.make(l, "session", session)
		return err
	},
	"prefetch.close":  func(c *testCase, l *line) error { return get[Session](c, l, "session").CloseAfter(c.sync(l)) },
	"prefetch.cancel": func(c *testCase, l *line) error { return get[Session](c, l, "session").Cancel() },
	"prefetch.prompt": func(c *testCase, l *line) error {
		op, match, err := get[Session](c, l, "session").Prompt(l.prompt(), l.opOptions(c))
		l.out("match", match.Tokens)
		l.out("resident", match.ResidentTokens)
		op, err = made(op, err)
		c.make(l, "op", op)
		return err
	},
	"prefetch.hint": func(c *testCase, l *line) error {
		return get[Session](c, l, "session").Hint(get[Table](c, l, "table"), l.floats("scores"))
	},
	"prefetch.submit": func(c *testCase, l *line) error {
		submitted, err := get[Session](c, l, "session").Submit(get[Table](c, l, "table"), l.num("position", 0))
		l.out("submitted", submitted)
		return err
	},
	"prefetch.require": func(c *testCase, l *line) error {
		result, err := get[Session](c, l, "session").Require(get[Table](c, l, "table"), l.num("first_block", 0), l.num("num_blocks", All),
			l.after("timeout", Forever))
		l.out("resident", result.Resident)
		l.out("absent", result.OnTime+result.Late+result.OnDemand)
		return err
	},
	"prefetch.step_begin": func(c *testCase, l *line) error {
		statuses, err := get[Session](c, l, "session").StepBegin(c.tables(l), l.u64s("num_tokens"))
		outList(l, "statuses", statuses)
		return err
	},
	"prefetch.acquire": func(c *testCase, l *line) error {
		view, err := get[Session](c, l, "session").Acquire(l.u32("index"), l.after("timeout", Forever))
		if err != nil {
			return err
		}
		missing := 0
		for _, slice := range view.Slices {
			if slice < 0 {
				missing++
			}
		}
		l.out("group", view.Group)
		l.out("layer", view.Layer)
		l.out("num_tables", len(view.FirstBlock))
		l.out("num_slices", len(view.Slices))
		l.out("missing", missing)
		l.out("last", view.Last)
		return nil
	},
	"prefetch.release": func(c *testCase, l *line) error {
		return get[Session](c, l, "session").Release(l.u32("index"), c.sync(l))
	},
	"prefetch.step_end": func(c *testCase, l *line) error {
		statuses, err := get[Session](c, l, "session").StepEnd()
		outList(l, "statuses", statuses)
		return firstOf(statuses, err)
	},
	"prefetch.stats": func(c *testCase, l *line) error {
		stats, err := get[Session](c, l, "session").Stats()
		if err == nil {
			outFields(l, stats)
			l.out("balance", stats.Needed-stats.OnTime-stats.Late-stats.OnDemand)
		}
		return err
	},
}
