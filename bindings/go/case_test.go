// SPDX-License-Identifier: Apache-2.0

package pagedkv

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// wrong is a line that cannot be run.
type wrong string

// line is a line of the conformance cases: its arguments, and what the operation gave (bindings/conformance/README.md).
type line struct {
	number       int
	op           string
	args, wanted map[string]string
	order        []string // of wanted
	used         map[string]bool
	outputs      map[string]string
}

func parseLine(text string, number int) *line {
	words := strings.Fields(text)
	l := &line{number, words[0], map[string]string{}, map[string]string{}, nil, map[string]bool{}, map[string]string{}}
	after := false
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		switch {
		case word == "->":
			after = true
		case !ok:
			panic(wrong(word + " is no key=value"))
		case after:
			l.wanted[key] = value
			l.order = append(l.order, key)
		default:
			l.args[key] = value
		}
	}
	return l
}

func (l *line) has(key string) bool {
	l.used[key] = true
	_, ok := l.args[key]
	return ok
}

func (l *line) text(key, otherwise string) string {
	if l.has(key) {
		return l.args[key]
	}
	return otherwise
}

func parseNumber(text string) uint64 {
	if text == "max" {
		return math.MaxUint64
	}
	if strings.HasPrefix(text, "-") {
		value, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			panic(wrong(err.Error()))
		}
		return uint64(value)
	}
	value, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		panic(wrong(err.Error()))
	}
	return value
}

func (l *line) num(key string, otherwise uint64) uint64 {
	if !l.has(key) {
		return otherwise
	}
	return parseNumber(l.args[key])
}

func (l *line) u32(key string) uint32 { return uint32(l.num(key, 0)) }

// after is a timeout.
func (l *line) after(key string, otherwise time.Duration) time.Duration {
	if !l.has(key) {
		return otherwise
	}
	return time.Duration(parseNumber(l.args[key]))
}

// name is one of the names, as its place in the list plus first; or a number, which need be no name's.
func (l *line) name(key string, names string, first, otherwise int32) int32 {
	if !l.has(key) {
		return otherwise
	}
	for i, name := range strings.Fields(names) {
		if name == l.args[key] {
			return first + int32(i)
		}
	}
	return int32(parseNumber(l.args[key]))
}

func parseList(text string) []uint64 {
	var items []uint64
	if text == "" || text == "none" {
		return items
	}
	for _, item := range strings.Split(text, ",") {
		if from, to, ok := strings.Cut(item, ".."); ok {
			for i := int64(parseNumber(from)); i <= int64(parseNumber(to)); i++ {
				items = append(items, uint64(i))
			}
		} else if value, times, ok := strings.Cut(item, "*"); ok {
			for i := parseNumber(times); i > 0; i-- {
				items = append(items, parseNumber(value))
			}
		} else {
			items = append(items, parseNumber(item))
		}
	}
	return items
}

func listOf[E any](l *line, key string, convert func(uint64) E) []E {
	var items []E
	for _, item := range parseList(l.text(key, "")) {
		items = append(items, convert(item))
	}
	return items
}

func (l *line) u64s(key string) []uint64 { return parseList(l.text(key, "")) }
func (l *line) i64s(key string) []int64 {
	return listOf(l, key, func(x uint64) int64 { return int64(x) })
}
func (l *line) i32s(key string) []int32 {
	return listOf(l, key, func(x uint64) int32 { return int32(x) })
}
func (l *line) u32s(key string) []uint32 {
	return listOf(l, key, func(x uint64) uint32 { return uint32(x) })
}
func (l *line) floats(key string) []float32 {
	return listOf(l, key, func(x uint64) float32 { return float32(int64(x)) })
}

func bytesOf(text string) []byte {
	if !strings.HasPrefix(text, "@") {
		return []byte(text)
	}
	bytes, err := hex.DecodeString(text[1:])
	if err != nil {
		panic(wrong(err.Error()))
	}
	return bytes
}

func (l *line) bytes(key string) []byte {
	if !l.has(key) {
		return nil
	}
	return bytesOf(l.args[key])
}

func (l *line) out(key string, value any) {
	if yes, ok := value.(bool); ok {
		value = map[bool]int{true: 1}[yes]
	}
	l.outputs[key] = fmt.Sprint(value)
}

func outList[E any](l *line, key string, items []E) {
	texts := make([]string, len(items))
	for i, item := range items {
		if status, ok := any(item).(Status); ok {
			texts[i] = status.Name()
		} else {
			texts[i] = fmt.Sprint(item)
		}
	}
	l.outputs[key] = "none"
	if len(texts) != 0 {
		l.outputs[key] = strings.Join(texts, ",")
	}
}

func fnv1a(bytes []byte) string {
	hash := fnv.New64a()
	hash.Write(bytes)
	return fmt.Sprintf("%016x", hash.Sum64())
}

// memoryOf are the bytes of a slice.
func memoryOf[E any](items []E) []byte {
	if len(items) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&items[0])), len(items)*int(unsafe.Sizeof(items[0])))
}

// expanded writes out ranges and repetitions.
func expanded(value string) string {
	if !strings.Contains(value, "..") && !strings.Contains(value, "*") {
		return value
	}
	var texts []string
	for _, item := range parseList(value) {
		texts = append(texts, fmt.Sprint(int64(item)))
	}
	return strings.Join(texts, ",")
}

// testCase has the objects of a case; those that could not be made, or are closed, are in it, too.
type testCase struct {
	objects []namedObject
	folder  string
}

type namedObject struct {
	name   string
	object any
}

func (c *testCase) make(l *line, key string, object any) {
	name := l.text(key, "")
	if name == "" {
		panic(wrong(key + "= names no new object"))
	}
	c.objects = append(c.objects, namedObject{name, object})
}

func find[T any](c *testCase, name string) *T {
	for i := len(c.objects); i > 0; i-- {
		if object, ok := c.objects[i-1].object.(*T); ok && c.objects[i-1].name == name {
			return object
		}
	}
	return nil
}

func get[T any](c *testCase, l *line, key string) *T {
	object := find[T](c, l.text(key, ""))
	if object == nil {
		panic(wrong(key + "=" + l.text(key, "") + ": there is no such object"))
	}
	return object
}

// made is what a call made, or an object that is none.
func made[T any](object *T, err error) (*T, error) {
	if object == nil {
		object = new(T)
	}
	return object, err
}

func (c *testCase) sync(l *line) *Sync {
	value := l.text("sync", "")
	if value == "" {
		return nil
	}
	name, count, _ := strings.Cut(value, ":")
	return AfterCount(find[Counter](c, name), parseNumber(count), l.after("sync_timeout", time.Millisecond))
}

func (c *testCase) tables(l *line) []*Table {
	var tables []*Table
	if names := l.text("tables", ""); names != "" {
		for _, name := range strings.Split(names, ",") {
			table := find[Table](c, name)
			if table == nil {
				panic(wrong("there is no table " + name))
			}
			tables = append(tables, table)
		}
	}
	return tables
}

func (c *testCase) scratch(name string) string {
	if c.folder == "" {
		folder, err := os.MkdirTemp("", "pkv-cases")
		if err != nil {
			panic(err)
		}
		c.folder = folder
	}
	return filepath.Join(c.folder, name)
}

func (c *testCase) end() {
	for i := len(c.objects); i > 0; i-- {
		switch object := c.objects[i-1].object.(type) {
		case *Counter:
			object.Close()
		case interface{ Close() error }:
			_ = object.Close()
		}
	}
	if c.folder != "" {
		os.RemoveAll(c.folder)
	}
}

func (l *line) prompt() *Prompt {
	prompt := &Prompt{Tokens: l.i32s("tokens"), Namespace: l.namespace()}
	for _, each := range strings.Split(l.text("media", ""), "/") {
		if each != "" {
			parts := strings.SplitN(each, ":", 3)
			prompt.Media = append(prompt.Media, Media{parseNumber(parts[0]), parseNumber(parts[1]), bytesOf(parts[2])})
		}
	}
	return prompt
}

func (l *line) namespace() *Namespace {
	named := false
	for _, key := range []string{"model", "adapter", "adapter_id", "generation", "salt"} {
		named = l.has(key) || named
	}
	if !named {
		return nil
	}
	return &Namespace{l.bytes("model"), l.bytes("adapter"), l.num("adapter_id", 0), l.num("generation", 0), l.bytes("salt")}
}

func (l *line) retention() *Retention {
	return &Retention{uint32(l.num("priority", 50)), l.num("pin", 0) != 0, l.after("ttl", 0)}
}

func (l *line) outMatch(match Match) {
	l.out("match", match.Tokens)
	l.out("blocks", match.Blocks)
	l.out("resident", match.ResidentTokens)
	l.out("tier0", match.TierTokens[0])
	l.out("tier1", match.TierTokens[1])
}

const dtypeNames = "f32 f16 bf16 f8e4m3 f8e5m2 i8 opaque"

// pattern is rows of the cases.
type pattern struct {
	data  [2][]byte
	rows  [2]Rows
	given [2]bool
}

func newPattern(l *line, pool *Pool, group, layer uint32, position, count uint64, fill bool) *pattern {
	p := &pattern{}
	layout, err := pool.Layout(group, 0)
	if err != nil { // a handle or a group that is no good is for the call to refuse
		layout = LayerLayout{DType: F32}
	}
	dtype := DType(l.name("dtype", dtypeNames, 1, int32(layout.DType)))
	tag, sides := l.num("fill", 0), l.text("sides", "kv")
	stored, wanted := layout.DType.Bytes(), dtype.Bytes()
	if stored == 0 {
		stored = 1
	}
	if wanted == 0 {
		wanted = 1
	}
	values := dtype == F32 && (layout.DType != F32 || l.has("values"))
	if dtype != layout.DType && dtype != F32 {
		panic(wrong("rows are of the group's type or of f32"))
	}
	for side, row := range []uint64{layout.KRowBytes, layout.VRowBytes} {
		bytes := row / stored * wanted
		p.given[side] = strings.Contains(sides, "kv"[side:side+1]) && (side == 0 || bytes != 0 || layout.KRowBytes == 0)
		heads := uint64(layout.NumKVHeads)
		p.data[side] = make([]byte, count*heads*bytes)
		if p.given[side] {
			p.rows[side] = RowsOf(p.data[side], dtype, count)
		}
		for t := uint64(0); fill && t < count; t++ {
			for h := uint64(0); h < heads; h++ {
				at := p.data[side][(t*heads+h)*bytes:][:bytes]
				token := position + t
				if values {
					for i := uint64(0); i < bytes/4; i++ {
						value := float32(int64((tag+uint64(side)*5+uint64(layer)*3+token*7+h*2+i)%17) - 8)
						*(*float32)(unsafe.Pointer(&at[4*i])) = value
					}
					continue
				}
				for i := range at {
					at[i] = byte(tag*7 + uint64(side)*101 + uint64(layer)*53 + token*29 + (token>>8)*11 + h*17 + uint64(i)*3)
				}
			}
		}
	}
	return p
}

func (p *pattern) out(l *line) {
	for side, key := range []string{"k", "v"} {
		if p.given[side] {
			l.out(key, fnv1a(p.data[side]))
		}
	}
}
