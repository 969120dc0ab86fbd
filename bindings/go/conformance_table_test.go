// SPDX-License-Identifier: Apache-2.0

package pagedkv

func (l *line) rows(c *testCase, position, count uint64, fill bool) *pattern {
	return newPattern(l, get[Pool](c, l, "pool"), l.u32("group"), l.u32("layer"), position, count, fill)
}

func fillTable(c *testCase, l *line) error {
	pool, table := get[Pool](c, l, "pool"), get[Table](c, l, "table")
	from, end := l.num("from", 0), l.num("num_tokens", 0)
	for group := uint32(0); ; group++ {
		if _, err := pool.Layout(group, 0); err != nil {
			break
		}
		for layer := uint32(0); ; layer++ {
			if _, err := pool.Layout(group, layer); err != nil {
				break
			}
			rows := newPattern(l, pool, group, layer, from, end-from, true)
			if err := table.Write(group, layer, from, end-from, rows.rows[0], rows.rows[1], nil); err != nil {
				return err
			}
		}
	}
	return table.Commit(end, nil)
}

func exportTable(c *testCase, l *line) error {
	size, err := get[Table](c, l, "table").ExportTo(nil)
	if err != nil {
		return err
	}
	buffer := make([]byte, size)
	capacity := l.num("capacity", size)
	written, err := get[Table](c, l, "table").ExportTo(buffer[:capacity])
	l.out("size", written)
	damage, into := l.has("damage"), l.has("into")
	if err == nil && damage {
		buffer[l.num("damage", 0)] ^= 1
	}
	if err == nil && into {
		err = get[Table](c, l, "into").Import(buffer[:written])
	}
	return err
}

var tableOperations = map[string]operation{
	"table.create": func(c *testCase, l *line) error {
		table, err := made(get[Pool](c, l, "pool").Table())
		c.make(l, "table", table)
		return err
	},
	"table.destroy": func(c *testCase, l *line) error { return get[Table](c, l, "table").CloseAfter(c.sync(l)) },
	"table.clear":   func(c *testCase, l *line) error { return get[Table](c, l, "table").Clear(c.sync(l)) },
	"table.admit": func(c *testCase, l *line) error {
		match, err := get[Table](c, l, "table").Admit(l.prompt(), &AdmitOptions{l.num("max_match", 0), l.num("reserve_tokens", 0),
			l.num("watermark", 0), l.u32("flags")})
		if err == nil {
			l.outMatch(match)
		}
		return err
	},
	"table.reserve": func(c *testCase, l *line) error { return get[Table](c, l, "table").Reserve(l.num("num_tokens", 0)) },
	"table.set_tokens": func(c *testCase, l *line) error {
		return get[Table](c, l, "table").SetTokens(l.num("position", 0), l.i32s("tokens"))
	},
	"table.write": func(c *testCase, l *line) error {
		position, count := l.num("position", 0), l.num("num_tokens", 0)
		rows := l.rows(c, position, count, true)
		return get[Table](c, l, "table").Write(l.u32("group"), l.u32("layer"), position, count, rows.rows[0], rows.rows[1], c.sync(l))
	},
	"table.gather": func(c *testCase, l *line) error {
		count := l.num("num_tokens", 0)
		rows := l.rows(c, 0, count, false)
		err := get[Table](c, l, "table").Gather(l.u32("group"), l.u32("layer"), l.num("position", 0), count, rows.rows[0], rows.rows[1], c.sync(l))
		if err == nil {
			rows.out(l)
		}
		return err
	},
	"table.commit": func(c *testCase, l *line) error {
		return get[Table](c, l, "table").Commit(l.num("num_tokens", 0), c.sync(l))
	},
	"table.fill": fillTable,
	"table.fork": func(c *testCase, l *line) error {
		fork, err := made(get[Table](c, l, "table").Fork(c.sync(l)))
		c.make(l, "fork", fork)
		return err
	},
	"table.truncate": func(c *testCase, l *line) error {
		return get[Table](c, l, "table").Truncate(l.num("num_tokens", 0), c.sync(l))
	},
	"table.accept": func(c *testCase, l *line) error {
		return get[Table](c, l, "table").Accept(l.u64s("positions"), c.sync(l))
	},
	"table.window": func(c *testCase, l *line) error { return get[Table](c, l, "table").Window(c.sync(l)) },
	"table.set_retention": func(c *testCase, l *line) error {
		return get[Table](c, l, "table").SetRetention(l.num("first_token", 0), l.num("num_tokens", All), l.retention())
	},
	"table.take_copies": func(c *testCase, l *line) error {
		copies := make([]PageCopy, l.num("capacity", 8))
		count, err := get[Table](c, l, "table").takeCopies(copies)
		l.out("count", count)
		if err != nil || len(copies) == 0 {
			return err
		}
		var src, dst []int32
		for _, each := range copies[:count] {
			src, dst = append(src, each.Src), append(dst, each.Dst)
		}
		outList(l, "src", src)
		outList(l, "dst", dst)
		return nil
	},
	"table.export": exportTable,
	"table.pages": func(c *testCase, l *line) error {
		pages := make([]int32, l.num("capacity", 256))
		count, err := get[Table](c, l, "table").pages(l.u32("group"), pages)
		l.out("num_blocks", count)
		if err == nil && len(pages) != 0 {
			outList(l, "pages", pages[:count])
		}
		return err
	},
	"table.slots": func(c *testCase, l *line) error {
		slots, err := get[Table](c, l, "table").Slots(l.u32("group"), l.num("position", 0), l.num("num_tokens", 0))
		outList(l, "slots", slots)
		return err
	},
	"table.residency": func(c *testCase, l *line) error {
		where, err := get[Table](c, l, "table").Residency(l.u32("group"), l.num("first_block", 0), l.num("num_blocks", 0))
		outList(l, "where", where)
		return err
	},
	"table.spill": func(c *testCase, l *line) error {
		result, err := get[Table](c, l, "table").Spill(l.num("first_block", 0), l.num("num_blocks", All), c.sync(l))
		l.out("spilled", result.SpilledBlocks)
		l.out("shared", result.SharedPages)
		return err
	},
	"table.restore": func(c *testCase, l *line) error {
		restored, err := get[Table](c, l, "table").Restore(l.num("first_block", 0), l.num("num_blocks", All), l.after("timeout", Forever))
		l.out("restored", restored)
		return err
	},
	"table.info": func(c *testCase, l *line) error {
		info, err := get[Table](c, l, "table").Info()
		if err == nil {
			outFields(l, info)
		}
		return err
	},

	"batch.create": func(c *testCase, l *line) error {
		batch, err := made(get[Pool](c, l, "pool").Batch(BatchOptions{uint32(l.num("max_tables", 1)), l.num("max_tokens", 0),
			[]BatchArrays{{Group: l.u32("group"), Fill: int32(l.num("fill", 0)), MaxBlocks: l.num("max_blocks", 0)}}}))
		c.make(l, "batch", batch)
		return err
	},
	"batch.destroy": func(c *testCase, l *line) error { return get[Batch](c, l, "batch").Close() },
	"batch.arrays": func(c *testCase, l *line) error {
		batch := get[Batch](c, l, "batch")
		outList(l, "block_table", batch.Arrays[0].BlockTable)
		outList(l, "slot_mapping", batch.Arrays[0].SlotMapping)
		outList(l, "lengths", batch.Lengths)
		outList(l, "last_page_len", batch.LastPageLen)
		return nil
	},
	"batch.reserve": func(c *testCase, l *line) error {
		statuses, err := get[Batch](c, l, "batch").Reserve(c.tables(l), l.u32s("num_new"))
		outList(l, "statuses", statuses)
		return firstOf(statuses, err)
	},
	"batch.set_tokens": func(c *testCase, l *line) error {
		statuses, err := get[Batch](c, l, "batch").SetTokens(l.i32s("tokens"))
		outList(l, "statuses", statuses)
		return firstOf(statuses, err)
	},
	"batch.write": func(c *testCase, l *line) error {
		rows := l.rows(c, 0, l.num("num_tokens", 0), true)
		return get[Batch](c, l, "batch").Write(l.u32("group"), l.u32("layer"), rows.rows[0], rows.rows[1], c.sync(l))
	},
	"batch.gather": func(c *testCase, l *line) error {
		rows := l.rows(c, 0, l.num("num_tokens", 0), false)
		err := get[Batch](c, l, "batch").Gather(l.u32("group"), l.u32("layer"), l.u64s("first"), l.num("padded", 0), rows.rows[0], rows.rows[1],
			c.sync(l))
		if err == nil {
			rows.out(l)
		}
		return err
	},
	"batch.commit": func(c *testCase, l *line) error {
		statuses, err := get[Batch](c, l, "batch").Commit(l.u32s("num_accepted"), c.sync(l))
		outList(l, "statuses", statuses)
		return firstOf(statuses, err)
	},
}
