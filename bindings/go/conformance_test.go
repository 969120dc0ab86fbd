// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// PKV_CONFORMANCE=FILE makes the test program the runner of the conformance cases.
func TestMain(m *testing.M) {
	file := os.Getenv("PKV_CONFORMANCE")
	if file == "" {
		os.Exit(m.Run())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	r := runner{name: "(before the first case)"}
	r.run(string(text), os.Getenv("PKV_CONFORMANCE_CASE"))
	fmt.Printf("conformance: %d cases, %d checks, %d failed\n", r.cases, r.checks, r.failed)
	if r.cases == 0 || r.failed != 0 {
		os.Exit(1)
	}
}

type runner struct {
	cases, checks, failed int
	name                  string
}

func (r *runner) check(l *line, key, got, wanted string, err error) {
	r.checks++
	if got != wanted {
		fmt.Fprintf(os.Stderr, "FAIL %s, line %d: %s: %s is %s, not %s  %v\n", r.name, l.number, l.op, key, got, wanted, err)
		r.failed++
	}
}

func (r *runner) runLine(c *testCase, text string, number int) {
	defer func() {
		if w, ok := recover().(wrong); ok {
			fmt.Fprintf(os.Stderr, "line %d: %s: %s\n", number, text, string(w))
			r.failed++
		}
	}()
	l := parseLine(text, number)
	run := operations[l.op]
	if run == nil {
		panic(wrong("there is no such operation"))
	}
	err := run(c, l)
	status := OK
	if err != nil && !errors.As(err, &status) {
		panic(wrong(err.Error()))
	}
	wanted, ok := l.wanted["status"]
	if !ok {
		wanted = "OK"
	}
	r.check(l, "status", status.Name(), wanted, err)
	for _, key := range l.order {
		if key != "status" {
			got, ok := l.outputs[key]
			if !ok {
				got = "nothing"
			}
			r.check(l, key, got, expanded(l.wanted[key]), err)
		}
	}
	for key := range l.args {
		if !l.used[key] {
			panic(wrong(key + "= means nothing here"))
		}
	}
}

func (r *runner) run(text, only string) {
	c := &testCase{}
	wanted := false
	for i, whole := range strings.Split(text, "\n") {
		line, _, _ := strings.Cut(whole, "#")
		line = strings.TrimSpace(line)
		if name, ok := cutPrefix(line, "case "); ok {
			c.end()
			c = &testCase{}
			r.name = strings.TrimSpace(name)
			wanted = only == "" || only == r.name
			if wanted {
				r.cases++
			}
		} else if wanted && line != "" {
			r.runLine(c, line, i+1)
		}
	}
	c.end()
}

func cutPrefix(text, prefix string) (string, bool) {
	return strings.TrimPrefix(text, prefix), strings.HasPrefix(text, prefix)
}

// firstOf gives the first failure of several statuses, where the call itself has none.
func firstOf(statuses []Status, err error) error {
	for _, status := range statuses {
		if err == nil && status != OK {
			return status
		}
	}
	return err
}

type operation func(c *testCase, l *line) error

var operations = map[string]operation{
	"version": func(c *testCase, l *line) error {
		l.out("number", VersionNumber())
		l.out("text", Version())
		return nil
	},
	"status_name": func(c *testCase, l *line) error {
		l.out("name", fullName(Status(l.num("number", 0))))
		return nil
	},
	"dtype_bytes": func(c *testCase, l *line) error {
		l.out("bytes", DType(l.name("dtype", dtypeNames, 1, 0)).Bytes())
		return nil
	},
	"digest": func(c *testCase, l *line) error {
		var parts [][]byte
		if text := l.text("parts", ""); text != "" {
			for _, part := range strings.Split(text, ",") {
				parts = append(parts, bytesOf(part))
			}
		}
		l.out("digest", fmt.Sprintf("%x", Digest(parts...)))
		return nil
	},
	"counter": func(c *testCase, l *line) error {
		counter := find[Counter](c, l.text("counter", ""))
		if counter == nil {
			counter = NewCounter()
			c.make(l, "counter", counter)
		}
		counter.Set(l.num("value", 0))
		return nil
	},
	"tier.host": func(c *testCase, l *line) error {
		tier, err := made(HostTier(l.num("capacity", 0)))
		c.make(l, "tier", tier)
		return err
	},
	"tier.file": func(c *testCase, l *line) error {
		tier, err := made(FileTier(FileTierOptions{Path: c.scratch(l.text("path", "file")), CapacityBytes: l.num("capacity", 0),
			MaxImages: l.num("max_images", 0), Identity: l.bytes("identity"), Engine: IOEngine(l.name("engine", "auto uring threads", 0, 0)),
			Threads: l.u32("threads"), Flags: l.u32("flags"), LockTimeout: l.after("lock_timeout", 0)}))
		c.make(l, "tier", tier)
		return err
	},
	"tier.close": func(c *testCase, l *line) error { return get[Tier](c, l, "tier").Close() },
	"tier.stats": func(c *testCase, l *line) error {
		stats, err := get[Tier](c, l, "tier").Stats()
		if err == nil {
			outFields(l, stats)
			outFields(l, stats.Usage)
		}
		return err
	},
	"queue.create": func(c *testCase, l *line) error {
		queue, err := made(NewQueue())
		c.make(l, "queue", queue)
		return err
	},
	"queue.destroy": func(c *testCase, l *line) error { return get[Queue](c, l, "queue").Close() },
	"queue.handle": func(c *testCase, l *line) error {
		fd, err := get[Queue](c, l, "queue").FD()
		l.out("valid", fd >= 0)
		return err
	},
	"queue.drain": func(c *testCase, l *line) error {
		ended, err := get[Queue](c, l, "queue").Drain(int(l.num("capacity", 16)), l.after("timeout", 0))
		var users []uint64
		var statuses []Status
		for _, end := range ended {
			users, statuses = append(users, end.User), append(statuses, end.Status)
		}
		outList(l, "users", users)
		outList(l, "statuses", statuses)
		return err
	},
	"op.poll": func(c *testCase, l *line) error {
		info, err := get[Op](c, l, "op").Poll()
		if err == nil {
			l.out("state", info.Ended)
			l.out("result", info.Status.Name())
			l.out("num_items", info.NumItems)
			l.out("done_items", info.DoneItems)
			l.out("good_items", info.GoodItems)
			outList(l, "statuses", info.Statuses)
		}
		return err
	},
	"op.wait":   func(c *testCase, l *line) error { return get[Op](c, l, "op").Wait(l.after("timeout", Forever)) },
	"op.cancel": func(c *testCase, l *line) error { return get[Op](c, l, "op").Cancel() },
	"op.close":  func(c *testCase, l *line) error { return get[Op](c, l, "op").Close() },
}

func init() {
	for _, more := range []map[string]operation{poolOperations, tableOperations, prefetchOperations} {
		for name, run := range more {
			operations[name] = run
		}
	}
}
