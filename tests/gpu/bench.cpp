// SPDX-License-Identifier: Apache-2.0
// How fast the device's functions are, beside what the device can do: gathers and writes of prefill size against a copy
// of the same bytes on the device, writes of decode size against an empty launch, transfers against cudaMemcpyAsync.
// Slices of ours and of the reference alternate; of each the median counts, and the spread is shown. Bytes are checked
// before anything is timed.
#include "gpu/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <pagedkv/pool.h>

namespace {

constexpr int rounds = 15;

void need(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    std::printf("%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

void need(pkv_status status, const char *what) {
    if (status == PKV_OK) return;
    std::printf("%s: %s: %s\n", what, pkv_status_string(status), why);
    std::exit(1);
}

cudaStream_t stream;
cudaEvent_t begin_event, end_event;

/// Microseconds of the device for one of `repeats` runs.
double time_us(int repeats, const std::function<void()> &run) {
    need(cudaEventRecord(begin_event, stream), "event");
    for (int i = 0; i < repeats; ++i) run();
    need(cudaEventRecord(end_event, stream), "event");
    need(cudaEventSynchronize(end_event), "event");
    float ms = 0;
    need(cudaEventElapsedTime(&ms, begin_event, end_event), "event");
    return static_cast<double>(ms) * 1e3 / repeats;
}

struct Times {
    double median, low, high;
};

Times summary(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return {times[times.size() / 2], times[times.size() / 10], times[times.size() * 9 / 10]};
}

/// Both by turns.
void compare(const std::function<void()> &ours, const std::function<void()> &reference, int repeats, Times &a,
             Times &b) {
    std::vector<double> x, y;
    for (int i = 0; i < 3; ++i) time_us(repeats, ours), time_us(repeats, reference); // warm
    for (int i = 0; i < rounds; ++i) {
        x.push_back(time_us(repeats, ours));
        y.push_back(time_us(repeats, reference));
    }
    a = summary(x), b = summary(y);
}

void report_rate(const char *name, double moved_bytes, const Times &ours, const Times &reference) {
    std::printf("%-58s %8.1f GB/s  reference %8.1f GB/s  ratio %.3f  (%.1f .. %.1f us)\n", name,
                moved_bytes / ours.median / 1e3, moved_bytes / reference.median / 1e3, reference.median / ours.median,
                ours.low, ours.high);
    std::fflush(stdout);
}

std::vector<unsigned char> random_bytes(uint64_t bytes, uint64_t seed) {
    std::vector<unsigned char> data(bytes);
    for (uint64_t i = 0; i < bytes; i += 8) {
        seed += 0x9E3779B97F4A7C15u;
        uint64_t mixed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
        mixed ^= mixed >> 27;
        std::memcpy(data.data() + i, &mixed, std::min<uint64_t>(8, bytes - i));
    }
    return data;
}

// ---- rows of prefill size -------------------------------------------------------------------------------------------

struct Shape {
    const char *name;
    uint32_t layers, heads, dim;
    uint64_t tokens;
};

struct Pool {
    std::vector<pkv_device_layer> layers;
    unsigned char *memory;
    float *scales;
    uint64_t bytes;
};

Pool make_pool(const Shape &shape, uint32_t page_tokens, int32_t layout, int32_t dtype, int32_t scales) {
    const uint64_t element = pkv_dtype_bytes(dtype), row = shape.dim * element, side = page_tokens * shape.heads * row;
    const uint64_t pages = shape.tokens / page_tokens + 64;
    Pool pool;
    pool.bytes = 2 * side * pages * shape.layers;
    pool.memory = static_cast<unsigned char *>(device_bytes(pool.bytes));
    const std::vector<float> ones(shape.heads * shape.layers, 1.5f);
    pool.scales = static_cast<float *>(upload_new(ones.data(), ones.size() * sizeof(float)));
    for (uint32_t i = 0; i < shape.layers; ++i) {
        pkv_device_layer layer{};
        unsigned char *const base = pool.memory + i * pages * 2 * side;
        layer.k = {base,
                   2 * side,
                   layout == PKV_LAYOUT_NHD ? shape.heads * row : row,
                   layout == PKV_LAYOUT_NHD ? row : page_tokens * row,
                   row,
                   pool.scales + i * shape.heads};
        layer.v = layer.k;
        layer.v.base = base + side;
        layer.page_tokens = page_tokens, layer.heads = shape.heads, layer.dtype = dtype, layer.scales = scales;
        layer.num_pages = pages;
        pool.layers.push_back(layer);
    }
    return pool;
}

/// Pages in an order as after hours of use.
std::vector<int32_t> shuffled_pages(uint64_t count, uint64_t of) {
    std::vector<int32_t> pages(of);
    for (uint64_t i = 0; i < of; ++i) pages[i] = static_cast<int32_t>(i);
    uint64_t seed = 99;
    for (uint64_t i = of; i > 1; --i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        std::swap(pages[i - 1], pages[(seed >> 33) % i]);
    }
    pages.resize(count);
    return pages;
}

void bench_rows(const Shape &shape, uint32_t page_tokens, int32_t layout, int32_t dtype, int32_t scales,
                const char *kind) {
    const Pool pool = make_pool(shape, page_tokens, layout, dtype, scales);
    const bool converts = dtype != PKV_DTYPE_F16;
    const uint64_t token = uint64_t{shape.heads} * shape.dim * 2,
                   stored = uint64_t{shape.heads} * shape.dim * pkv_dtype_bytes(dtype);
    const uint64_t side = shape.tokens * token, all = 2 * side * shape.layers;
    std::vector<unsigned char> values = random_bytes(side, 7);
    // Halves of moderate size: no infinities, no NaN.
    for (uint64_t i = 1; i < side; i += 2) values[i] = static_cast<unsigned char>((values[i] & 0x83) | 0x38);
    unsigned char *const rows = static_cast<unsigned char *>(device_bytes(all)), *const out =
                                                                                     static_cast<unsigned char *>(
                                                                                         device_bytes(all));
    for (uint64_t i = 0; i < 2 * shape.layers; ++i) upload(rows + i * side, values.data(), side);
    std::vector<pkv_device_flat> k, v, k_out, v_out;
    for (uint64_t i = 0; i < shape.layers; ++i) {
        k.push_back({rows + 2 * i * side, token, shape.dim * uint64_t{2}});
        v.push_back({rows + (2 * i + 1) * side, token, shape.dim * uint64_t{2}});
        k_out.push_back({out + 2 * i * side, token, shape.dim * uint64_t{2}});
        v_out.push_back({out + (2 * i + 1) * side, token, shape.dim * uint64_t{2}});
    }
    const std::vector<int32_t> pages = shuffled_pages(shape.tokens / page_tokens, pool.layers[0].num_pages);
    std::vector<int64_t> slots;
    for (uint64_t t = 0; t < shape.tokens; ++t)
        slots.push_back(int64_t{pages[t / page_tokens]} * page_tokens + static_cast<int64_t>(t % page_tokens));
    void *const slots_at = upload_new(slots.data(), slots.size() * 8), *const pages_at =
                                                                           upload_new(pages.data(), pages.size() * 4);

    pkv_device_write write{};
    write.struct_size = sizeof write, write.num_layers = shape.layers, write.flat_dtype = PKV_DTYPE_F16;
    write.layers = pool.layers.data(), write.k = k.data(), write.v = v.data();
    write.slots = slots_at, write.num_slots = shape.tokens, write.slot_bytes = 8;
    pkv_device_gather gather{};
    gather.struct_size = sizeof gather, gather.num_layers = shape.layers, gather.flat_dtype = PKV_DTYPE_F16;
    gather.layers = pool.layers.data(), gather.k = k_out.data(), gather.v = v_out.data();
    gather.pages = static_cast<const int32_t *>(pages_at), gather.num_pages = pages.size();
    gather.num_sequences = 1, gather.max_count = shape.tokens;
    const auto run_write = [&] { need(gpu->write(context, stream, &write, WHY), "write"); };
    const auto run_gather = [&] { need(gpu->gather(context, stream, &gather, WHY), "gather"); };

    // Right first: what is gathered is what was written, or close to it where it was rounded in between.
    run_write();
    run_gather();
    std::vector<unsigned char> got(side);
    for (const uint64_t number : {uint64_t{0}, 2 * uint64_t{shape.layers} - 1}) {
        download(got.data(), out + number * side, side);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < side; i += 2) {
            const int a = values[i] | values[i + 1] << 8, b = got[i] | got[i + 1] << 8;
            wrong += converts ? std::abs((a & 0x7FFF) - (b & 0x7FFF)) > 256 || (a ^ b) >> 15 != 0 : a != b;
        }
        if (wrong != 0) {
            std::printf("%s: %llu elements of %s are wrong\n", shape.name, static_cast<unsigned long long>(wrong),
                        kind);
            std::exit(1);
        }
    }

    // The reference moves as many bytes, read and written together.
    const uint64_t moved = (stored + token) * shape.tokens * 2 * shape.layers, copied = moved / 2;
    const auto copy = [&] {
        need(cudaMemcpyAsync(out, rows, std::min(copied, all), cudaMemcpyDeviceToDevice, stream), "copy");
    };
    const int repeats = static_cast<int>(std::max<uint64_t>(1, (uint64_t{1} << 30) / copied));
    Times ours, reference;
    char name[128];
    compare(run_write, copy, repeats, ours, reference);
    std::snprintf(name, sizeof name, "write  %s %s page %u %s", shape.name, kind, page_tokens,
                  layout == PKV_LAYOUT_NHD ? "NHD" : "HND");
    report_rate(name, static_cast<double>(moved), ours, reference);
    compare(run_gather, copy, repeats, ours, reference);
    std::snprintf(name, sizeof name, "gather %s %s page %u %s", shape.name, kind, page_tokens,
                  layout == PKV_LAYOUT_NHD ? "NHD" : "HND");
    report_rate(name, static_cast<double>(moved), ours, reference);
    for (void *address : {static_cast<void *>(rows), static_cast<void *>(out), static_cast<void *>(pool.memory),
                          static_cast<void *>(pool.scales), slots_at, pages_at})
        free_bytes(address);
}

// ---- decode ---------------------------------------------------------------------------------------------------------

void bench_decode() {
    const Shape shape{"8B", 1, 8, 128, 65536};
    const Pool pool = make_pool(shape, 16, PKV_LAYOUT_NHD, PKV_DTYPE_F16, PKV_SCALES_NONE);
    const uint64_t token = uint64_t{shape.heads} * shape.dim * 2;
    for (const uint64_t batch : {uint64_t{1}, uint64_t{32}, uint64_t{256}}) {
        void *const rows = device_bytes(batch * token);
        std::vector<int64_t> slots;
        for (uint64_t i = 0; i < batch; ++i) slots.push_back(static_cast<int64_t>((i * 977) % 60000));
        void *const slots_at = upload_new(slots.data(), slots.size() * 8);
        const pkv_device_flat flat{rows, token, shape.dim * uint64_t{2}};
        pkv_device_write write{};
        write.struct_size = sizeof write, write.num_layers = 1, write.flat_dtype = PKV_DTYPE_F16;
        write.layers = pool.layers.data(), write.k = &flat, write.v = &flat;
        write.num_slots = batch, write.slot_bytes = 8;
        for (const bool on_host : {false, true}) {
            write.slots = on_host ? static_cast<const void *>(slots.data()) : slots_at;
            write.slots_on_host = on_host;
            const auto ours = [&] { need(gpu->write(context, stream, &write, WHY), "write"); };
            Times a, b, c;
            compare(
                ours, [&] { launch_nothing(stream, 1, 32); }, 200, a, b);
            compare(
                ours, [&] { launch_parameters(stream, static_cast<uint32_t>(batch), 256); }, 200, a, c);
            // Alone, from launch to end, as a graph has it.
            cudaGraph_t graph;
            cudaGraphExec_t exec[2];
            for (int i = 0; i < 2; ++i) {
                need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
                for (int j = 0; j < 20; ++j) i == 0 ? ours() : launch_nothing(stream, 1, 32);
                need(cudaStreamEndCapture(stream, &graph), "capture");
                need(cudaGraphInstantiate(&exec[i], graph, 0), "graph");
                need(cudaGraphDestroy(graph), "graph");
            }
            Times d, e;
            compare([&] { need(cudaGraphLaunch(exec[0], stream), "graph"); },
                    [&] { need(cudaGraphLaunch(exec[1], stream), "graph"); }, 20, d, e);
            std::printf("decode write of %3llu, slots on the %-6s  call %.2f us; empty launch %.2f, with parameters "
                        "%.2f; in a graph %.2f, empty %.2f\n",
                        static_cast<unsigned long long>(batch), on_host ? "host" : "device", a.median, b.median,
                        c.median, d.median / 20, e.median / 20);
            for (const cudaGraphExec_t one : exec) need(cudaGraphExecDestroy(one), "graph");
        }
        free_bytes(rows);
        free_bytes(slots_at);
    }
    free_bytes(pool.memory);
    free_bytes(pool.scales);
}

// ---- pages and transfers --------------------------------------------------------------------------------------------

void bench_pages() {
    const Shape shape{"8B", 32, 8, 128, 4096};
    for (const uint32_t page_tokens : {16u, 64u}) {
        const Pool pool = make_pool(shape, page_tokens, PKV_LAYOUT_NHD, PKV_DTYPE_F16, PKV_SCALES_NONE);
        const uint64_t count = shape.tokens / page_tokens / 2,
                       slice = 2 * page_tokens * uint64_t{shape.heads} * shape.dim * 2;
        const std::vector<int32_t> pages = shuffled_pages(2 * count, pool.layers[0].num_pages);
        const std::vector<uint32_t> tokens(count, page_tokens);
        unsigned char *const image = static_cast<unsigned char *>(device_bytes(count * shape.layers * slice));
        unsigned char *const other = static_cast<unsigned char *>(device_bytes(count * shape.layers * slice));
        std::vector<pkv_device_slice> slices;
        for (uint64_t i = 0; i < count; ++i)
            for (uint32_t layer = 0; layer < shape.layers; ++layer)
                slices.push_back({layer, pages[i], PKV_LAYOUT_NHD, page_tokens,
                                  image + (i * shape.layers + layer) * slice, nullptr});
        const uint64_t bytes = count * shape.layers * slice;
        const auto copy = [&] { need(cudaMemcpyAsync(other, image, bytes, cudaMemcpyDeviceToDevice, stream), "copy"); };
        Times ours, reference;
        char name[128];
        compare(
            [&] {
                need(gpu->copy_pages(context, stream, pool.layers.data(), shape.layers, count, pages.data(),
                                     pages.data() + count, tokens.data(), 0, WHY),
                     "copy_pages");
            },
            copy, 4, ours, reference);
        std::snprintf(name, sizeof name, "copy pages %s page %u", shape.name, page_tokens);
        report_rate(name, 2.0 * static_cast<double>(bytes), ours, reference);
        compare(
            [&] {
                need(gpu->pack(context, stream, pool.layers.data(), shape.layers, slices.data(), slices.size(), 0, WHY),
                     "pack");
            },
            copy, 4, ours, reference);
        std::snprintf(name, sizeof name, "pack slices %s page %u", shape.name, page_tokens);
        report_rate(name, 2.0 * static_cast<double>(bytes), ours, reference);
        compare(
            [&] {
                need(gpu->unpack(context, stream, pool.layers.data(), shape.layers, slices.data(), slices.size(), 0,
                                 WHY),
                     "unpack");
            },
            copy, 4, ours, reference);
        std::snprintf(name, sizeof name, "unpack slices %s page %u", shape.name, page_tokens);
        report_rate(name, 2.0 * static_cast<double>(bytes), ours, reference);
        // A kernel that goes straight to the host, bounded as a transfer would be.
        unsigned char *const host = static_cast<unsigned char *>(pinned_bytes(bytes));
        for (pkv_device_slice &one : slices) one.bytes = host + (static_cast<unsigned char *>(one.bytes) - image);
        for (const uint32_t blocks : {8u, 32u, 0u}) {
            compare(
                [&] {
                    need(gpu->pack(context, stream, pool.layers.data(), shape.layers, slices.data(), slices.size(),
                                   blocks, WHY),
                         "pack");
                },
                [&] { need(cudaMemcpyAsync(host, image, bytes, cudaMemcpyDeviceToHost, stream), "copy"); }, 1, ours,
                reference);
            std::snprintf(name, sizeof name, "pack to pinned memory, page %u, %u blocks at most", page_tokens, blocks);
            report_rate(name, static_cast<double>(bytes), ours, reference);
        }
        free_pinned(host);
        for (void *address : {static_cast<void *>(image), static_cast<void *>(other), static_cast<void *>(pool.memory),
                              static_cast<void *>(pool.scales)})
            free_bytes(address);
    }
}

void bench_transfers() {
    void *own = nullptr;
    need(gpu->make_stream(context, 0, &own, WHY), "stream");
    cudaStream_t const before = stream;
    stream = static_cast<cudaStream_t>(own); // batched copies are for the library's own streams
    constexpr uint64_t bytes = uint64_t{256} << 20;
    unsigned char *const device = static_cast<unsigned char *>(device_bytes(bytes)), *const host =
                                                                                         static_cast<unsigned char *>(
                                                                                             pinned_bytes(bytes));
    for (const uint64_t piece : {bytes, uint64_t{2} << 20, uint64_t{128} << 10, uint64_t{32} << 10})
        for (const bool down : {true, false}) {
            std::vector<pkv_device_copy> copies;
            // In reverse, so that no two can be made one.
            for (uint64_t at = bytes; at > 0; at -= piece)
                copies.push_back({(down ? host : device) + at - piece, (down ? device : host) + at - piece, piece});
            Times ours, reference;
            compare(
                [&] {
                    need(gpu->copy(context, own, down ? PKV_DEVICE_TO_HOST : PKV_HOST_TO_DEVICE, copies.data(),
                                   copies.size(), WHY),
                         "copy");
                },
                [&] {
                    need(cudaMemcpyAsync(down ? host : device, down ? device : host, bytes,
                                         down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
                         "copy");
                },
                1, ours, reference);
            char name[128];
            std::snprintf(name, sizeof name, "copy %s in pieces of %llu KiB",
                          down ? "device to host" : "host to device", static_cast<unsigned long long>(piece >> 10));
            report_rate(name, static_cast<double>(bytes), ours, reference);
        }
    free_bytes(device);
    free_pinned(host);
    stream = before;
    gpu->end_stream(context, own);
}

} // namespace

int main() {
    if (open_device(nullptr) != 0 || context == nullptr) {
        std::printf("SKIP no device: %s\n", why);
        return 77;
    }
    pkv_device_facts facts{};
    facts.struct_size = sizeof facts;
    need(gpu->facts(context, &facts, WHY), "facts");
    std::printf("%s, %u multiprocessors, driver %d, runtime %d\n", facts.name, facts.multiprocessors, facts.driver,
                facts.runtime);
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    need(cudaEventCreate(&begin_event), "event");
    need(cudaEventCreate(&end_event), "event");
    // Llama 3: 8B has 32 layers of 8 KV heads of 128, 70B has 80; here as many tokens as make a gigabyte, and one layer
    // alone.
    const Shape shapes[] = {{"8B, 32 layers, 8192 tokens", 32, 8, 128, 8192},
                            {"70B, 80 layers, 4096 tokens", 80, 8, 128, 4096},
                            {"one layer, 8192 tokens", 1, 8, 128, 8192}};
    for (const Shape &shape : shapes)
        for (const uint32_t page_tokens : {16u, 64u}) {
            bench_rows(shape, page_tokens, PKV_LAYOUT_NHD, PKV_DTYPE_F16, PKV_SCALES_NONE, "f16");
            if (shape.layers == 80) continue;
            bench_rows(shape, page_tokens, PKV_LAYOUT_HND, PKV_DTYPE_F16, PKV_SCALES_NONE, "f16");
            bench_rows(shape, page_tokens, PKV_LAYOUT_NHD, PKV_DTYPE_F8_E4M3, PKV_SCALES_NONE, "fp8");
            bench_rows(shape, page_tokens, PKV_LAYOUT_NHD, PKV_DTYPE_F8_E4M3, PKV_SCALES_HEAD, "fp8 scaled");
        }
    bench_decode();
    bench_pages();
    bench_transfers();
    gpu->close(context);
    return 0;
}
