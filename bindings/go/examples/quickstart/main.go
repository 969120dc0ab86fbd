// SPDX-License-Identifier: Apache-2.0

// Two requests that share a prefix, and a fork of the second: the smallest tour of the library.
package main

import (
	"fmt"
	"log"

	"pagedkv.org/pagedkv"
)

const (
	layers  = 2
	heads   = 2
	headDim = 4
	row     = heads * headDim
	prompt  = 40
	total   = prompt + 1
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// model stands in for a model: element i of K of one token in one layer; V is its negative.
func model(tokens []int32, token, layer, i int) float32 {
	return float32(int(tokens[token])*16 + layer*8 + i)
}

// compute computes tokens [first, end) of a sequence, in all layers, and says that they are complete.
func compute(table *pagedkv.Table, tokens []int32, first, end int) {
	k, v := make([]float32, (end-first)*row), make([]float32, (end-first)*row)
	count := uint64(end - first)
	for layer := 0; layer < layers; layer++ {
		for n := range k {
			k[n] = model(tokens, first+n/row, layer, n%row)
			v[n] = -k[n]
		}
		check(table.Write(0, uint32(layer), uint64(first), count, pagedkv.RowsOf(k, pagedkv.F32, count), pagedkv.RowsOf(v, pagedkv.F32, count), nil))
	}
	check(table.Commit(uint64(end), nil))
}

// verify takes tokens [0, end) out again and compares every element.
func verify(table *pagedkv.Table, tokens []int32, end int) int {
	k, v := make([]float32, end*row), make([]float32, end*row)
	count := uint64(end)
	for layer := 0; layer < layers; layer++ {
		check(table.Gather(0, uint32(layer), 0, count, pagedkv.RowsOf(k, pagedkv.F32, count), pagedkv.RowsOf(v, pagedkv.F32, count), nil))
		for n := range k {
			if want := model(tokens, n/row, layer, n%row); k[n] != want || v[n] != -want {
				log.Fatalf("token %d of layer %d has other bytes than were written", n/row, layer)
			}
		}
	}
	return end
}

func main() {
	var tokens [3][]int32 // of request 1, of request 2, of its fork
	for t := int32(0); t < total; t++ {
		tokens[0] = append(tokens[0], 1000+t)
		if t < 35 { // the same system prompt, then another question
			tokens[1] = append(tokens[1], 1000+t)
		} else {
			tokens[1] = append(tokens[1], 2000+t)
		}
	}
	tokens[2] = tokens[1]

	pool, err := pagedkv.NewPool(pagedkv.PoolOptions{PageTokens: 16, Groups: []pagedkv.GroupOptions{{ // the model: 2 layers, 2 KV heads of 4 floats
		NumPages: 64, NumLayers: layers, NumKVHeads: heads, KHeadDim: headDim, VHeadDim: headDim, DType: pagedkv.F32}}})
	check(err)
	defer pool.Close()

	var tables [3]*pagedkv.Table
	for i := range tables[:2] {
		tables[i], err = pool.Table()
		check(err)
		defer tables[i].Close()
		match, err := tables[i].Admit(&pagedkv.Prompt{Tokens: tokens[i][:prompt]}, nil) // takes what is cached, makes room for the rest
		check(err)
		fmt.Printf("request %d: %d of %d tokens came from the cache\n", i+1, match.Tokens, prompt)
		compute(tables[i], tokens[i], int(match.Tokens), prompt)
	}

	tables[2], err = tables[1].Fork(nil) // another answer to request 2: all pages are shared
	check(err)
	defer tables[2].Close()
	check(tables[2].Reserve(total)) // room for a token: the last block becomes private
	check(tables[2].SetTokens(prompt, tokens[2][prompt:]))
	compute(tables[2], tokens[2], prompt, total)
	for i, end := range []int{prompt, prompt, total} {
		fmt.Printf("table %d: %d tokens, every byte as written\n", i+1, verify(tables[i], tokens[i], end))
	}
	stats, err := pool.Stats(0)
	check(err)
	fmt.Printf("pool: 3 tables of 3 blocks hold %d pages; %d page was copied for the fork\n", stats.HeldPages, stats.CopiedPages)
}
