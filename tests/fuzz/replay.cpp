// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without a fuzzer: over its corpus, over its seeds, and over changed copies of both. With a folder as its
// argument it writes the seeds there instead.
#include "fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
}

namespace {

using Input = std::vector<uint8_t>;

std::string target; // the program's name
std::vector<Input> corpus, seeds;

uint64_t next_random(uint64_t &state) { // splitmix64
    uint64_t mixed = state += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return mixed ^ (mixed >> 31);
}

void run(const Input &input) { must(LLVMFuzzerTestOneInput(input.data(), input.size()) == 0); }

void what_was_found_before_is_taken(void **) {
    assert_true(!corpus.empty());
    for (const Input &input : corpus) run(input);
}

void seeds_are_taken(void **) {
    assert_true(!seeds.empty());
    for (const Input &input : seeds) run(input);
}

/// One to four changes: bits, bytes, numbers at their limits, pieces left out or moved, ends cut off.
Input changed(Input input, uint64_t &random) {
    for (uint64_t changes = 1 + next_random(random) % 4; changes != 0 && !input.empty(); --changes) {
        const size_t at = next_random(random) % input.size();
        const size_t length = std::min<size_t>(1 + next_random(random) % 16, input.size() - at);
        static constexpr uint8_t limits[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
        const auto begin = input.begin() + static_cast<std::ptrdiff_t>(at);
        switch (next_random(random) % 6) {
        case 0: input[at] ^= static_cast<uint8_t>(1u << next_random(random) % 8); break;
        case 1: input[at] = static_cast<uint8_t>(next_random(random)); break;
        case 2: std::fill_n(begin, length, limits[next_random(random) % std::size(limits)]); break;
        case 3: input.erase(begin, begin + static_cast<std::ptrdiff_t>(length)); break;
        case 4: {
            const Input piece(begin, begin + static_cast<std::ptrdiff_t>(length));
            input.insert(input.begin() + static_cast<std::ptrdiff_t>(next_random(random) % input.size()), piece.begin(),
                         piece.end());
            break;
        }
        default: input.resize(at); break;
        }
    }
    return input;
}

void changed_copies_are_taken_or_refused(void **) {
    const char *const wanted = std::getenv("PKV_TEST_LONG");
    const int rounds = wanted != nullptr && std::strcmp(wanted, "1") == 0 ? 2000 : 20;
    uint64_t random = 1;
    for (const std::vector<Input> *list : {&corpus, &seeds})
        for (const Input &input : *list)
            for (int round = 0; round < rounds; ++round) run(changed(input, random));
}

void read_corpus() {
    std::error_code error;
    std::vector<std::filesystem::path> files;
    for (const auto &file : std::filesystem::directory_iterator("tests/fuzz/corpus/" + target, error))
        files.push_back(file.path());
    std::sort(files.begin(), files.end());
    for (const auto &path : files) {
        std::ifstream in(path, std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
}

int write_seeds(const std::string &folder) {
    std::filesystem::create_directories(folder);
    for (size_t i = 0; i < seeds.size(); ++i) {
        std::ofstream out(folder + "/seed" + std::to_string(i), std::ios::binary);
        out.write(reinterpret_cast<const char *>(seeds[i].data()), static_cast<std::streamsize>(seeds[i].size()));
        if (!out) return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    target = std::filesystem::path(argv[0]).filename().string();
    add_seeds([](const void *data, size_t size) {
        const auto *bytes = static_cast<const uint8_t *>(data);
        seeds.emplace_back(bytes, bytes + size);
    });
    if (argc == 2) return write_seeds(argv[1]);
    read_corpus();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_found_before_is_taken),
        cmocka_unit_test(seeds_are_taken),
        cmocka_unit_test(changed_copies_are_taken_or_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
